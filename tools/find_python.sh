#!/bin/sh
# Print the path of the first Python that fits: 3.11 or later, and able to make a virtual environment.
#
#   find_python.sh            the default order: 3.11, on which the tests run, then later ones, then python3 and python
#   find_python.sh 3.13 3.12  these versions alone, in this order
#   PYTHON=... find_python.sh this interpreter alone, by name or by path
#
# Each name is looked for in every folder of PATH, because the first one may be a pyenv shim that does not run or an
# older Python that hides a newer one; pyenv's own versions come last. When none fits, what was tried and what to do
# stand on stderr.
set -u
tried=""

note() {
  tried="$tried
  $1"
}

# Print a Python's version as "3 11 2", or nothing when it does not run.
version_of() {
  "$1" -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null </dev/null
}

# Print the path and end when this Python fits, else note why not.
check() {
  found=$(version_of "$1") || found=""
  # shellcheck disable=SC2086 # three words
  set -- "$1" $found
  if [ $# -ne 4 ]; then
    note "$1: does not run"
  elif [ "$2" -ne 3 ] || [ "$3" -lt 11 ]; then
    note "$1: is $2.$3.$4"
  elif ! "$1" -c 'import ensurepip, venv' 2>/dev/null </dev/null; then
    note "$1: is $2.$3.$4, without venv (Debian: apt-get install python$2.$3-venv)"
  else
    printf '%s\n' "$1"
    exit 0
  fi
}

# Check a name in every folder of PATH.
check_name() {
  at=0
  old_ifs=$IFS
  IFS=:
  for folder in $PATH; do
    IFS=$old_ifs
    if [ -x "$folder/$1" ] && [ ! -d "$folder/$1" ]; then
      at=1
      check "$folder/$1"
    fi
  done
  IFS=$old_ifs
  [ $at = 1 ] || note "$1: not on PATH"
}

check_pyenv() {
  for path in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$1".*/bin/python; do
    [ ! -x "$path" ] || check "$path"
  done
}

advise() {
  printf '%s\n' >&2 \
    "Expected a Python 3.11 or later that can make a virtual environment; none was found. Tried:$tried" \
    "Install one (Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv; without root: pyenv, conda or uv)," \
    "or name one: make install PYTHON=/path/to/python3"
  exit 1
}

if [ -n "${PYTHON:-}" ]; then
  case $PYTHON in
    */*) if [ -x "$PYTHON" ]; then check "$PYTHON"; else note "$PYTHON: not there"; fi ;;
    *) check_name "$PYTHON" ;;
  esac
  advise
fi

versions=${*:-3.11 3.12 3.13 3.14}
for version in $versions; do check_name "python$version"; done
[ $# -gt 0 ] || for name in python3 python; do check_name "$name"; done
for version in $versions; do check_pyenv "$version"; done
advise
