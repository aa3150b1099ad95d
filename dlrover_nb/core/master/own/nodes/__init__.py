"""Nodes of the job: who is alive, who is fenced, what each is told and asks for."""
