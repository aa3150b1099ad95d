"""What changes the state: nodes that come or go, another plan, and what users and programs ask for."""
