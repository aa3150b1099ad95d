"""How fast a job runs with given resources: the terms of T_iter, the fitted model, the next experiment."""
