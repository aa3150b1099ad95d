"""A simulated cluster: the same controllers, on jobs whose true speed is known."""
