"""Jobs whose true speed, memory and ends are known, for tests of what is fitted and planned."""
