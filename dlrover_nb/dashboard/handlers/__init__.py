"""What a server answers beside pages and the API: forms, downloads, events, metrics, live documents."""
