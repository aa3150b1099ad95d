"""How clients and programs reach a job: its service over HTTP, and the queue between them and the loop."""
