"""Whether the machines have room for a plan, what waiting jobs wait for, and what more room would bring."""
