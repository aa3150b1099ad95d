"""The script in the pod of an external program: a few lines of shell around the user's command.

They wait for the variables that the master writes into the pod (`core.master.external.launch.rendezvous`),
run the command with them, and restart it when they change, so that a job is re-scaled without moving the pods
that stay. Shell, since users' images have a shell and need not contain this package.

The variables come from an annotation, which users may change who may not run programs in the pod. So they
are data, a line ``NAME=VALUE`` each, and only those of `rendezvous.NAMES` are set: others (``PATH``,
``LD_PRELOAD``) run code.

A file that cannot be read tells nothing, and the program goes on: the kubelet replaces the folder around it
with each change of another annotation. An empty one tells it to end.

A program that reports by the protocol of Kubeflow Trainer finds its variables set too, from the address that
the master has when the program begins: one that is replaced in another pod is reported to from the program's
next start on.

After a program fails, its pod waits a little before failing too: usually another program was lost, and this
one restarts once that is replaced. If the program was killed (137, as when out of memory), the pod fails at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.launch.rendezvous import NAMES
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.reported import CERTIFICATE_VAR, TOKEN_FILE_VAR, TRAINER_PATH, URL_VAR
from dlrover_nb.core.structs.wire.pod_contract import NODE_VAR

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.external import ExternalSpec

CLUSTER_VAR = "DLROVER_NB_CLUSTER"  # names the file with the variables
REPORT_FILE_VAR, REPORT_TOKEN_VAR = "DLROVER_NB_REPORT_FILE", "DLROVER_NB_REPORT_TOKEN"
TRUSTED_VAR = "DLROVER_NB_CERTIFICATE_FILE"  # names the file with the certificate of the master's HTTP
HTTPS_PORT_VAR = "DLROVER_NB_HTTPS_PORT"  # where its HTTPS has another port than its HTTP
BEGINS = "dlrover-nb: the program begins"  # written before each start: later lines are of another program
LINGER_S, TERM_S = 15, 10

SCRIPT = f"""\
f=${CLUSTER_VAR}; p=
is() {{ r=$(cat "$f" 2>/dev/null) || return 0; [ "$r" = "$t" ]; }}
trap '[ -z "$p" ] || {{ kill $p 2>/dev/null; wait $p; }}; exit 143' TERM INT
while :; do
  until t=$(cat "$f" 2>/dev/null) && [ "$t" ]; do sleep 1; done
  set -f; IFS='
'
  for v in $t; do
    case $v in
      {"|".join(f"{name}=*" for name in NAMES)}) export "$v" ;;
      *) echo "dlrover-nb: unknown variable ${{v%%=*}} is not set" >&2 ;;
    esac
  done
  unset IFS; set +f
  u=$(cat "${REPORT_FILE_VAR}" 2>/dev/null)
  if [ "$u" ] && [ "${TOKEN_FILE_VAR}" ] && [ -r "${TRUSTED_VAR}" ]; then
    u=https${{u#http}}; u=${{u%/v1/*}}
    [ -z "${HTTPS_PORT_VAR}" ] || u=${{u%:*}}:${HTTPS_PORT_VAR}
    export {URL_VAR}="$u{TRAINER_PATH}?node=${NODE_VAR}" {CERTIFICATE_VAR}="${TRUSTED_VAR}"
  fi
  echo "{BEGINS}" >&2
  "$@" & p=$!
  while kill -0 $p 2>/dev/null && is; do sleep 1; done
  n=0
  if is; then
    wait $p; c=$?; p=
    if [ $c = 0 ] || [ $c = 137 ]; then exit $c; fi
    while is && [ $n -lt {LINGER_S} ]; do sleep 1; n=$((n + 1)); done
    if is; then exit $c; fi
  else
    kill $p 2>/dev/null
    while kill -0 $p 2>/dev/null && [ $n -lt {TERM_S} ]; do sleep 1; n=$((n + 1)); done
    kill -9 $p 2>/dev/null; wait $p; p=
  fi
done
"""

STORE = """\
import os, threading
from torch.distributed import TCPStore
port = int(os.environ["DLROVER_NB_STORE_PORT"])
store = TCPStore("0.0.0.0", port, is_master=True, wait_for_workers=False)
threading.Event().wait()
"""


def program(spec: ExternalSpec, role: Role, *, python: str = "") -> tuple[str, ...]:
    """Return the command of a role's container; `python` is the interpreter of our own part of it."""
    command = spec.program(role).command
    if not command and role is Role.PS and spec.framework.has_store:
        command = (python or "python3", "-c", STORE)
    return ("/bin/sh", "-c", SCRIPT, "dlrover-nb", *command)


def image(spec: ExternalSpec, role: Role) -> str:
    """Return the image of a role, for a store by default the workers'; empty: the job's image."""
    is_store = role is Role.PS and spec.framework.has_store
    return spec.program(role).image or (spec.worker.image if is_store else "")
