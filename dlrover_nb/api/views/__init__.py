"""What verbs and methods return: objects that display as text and as static HTML, in any front end."""
