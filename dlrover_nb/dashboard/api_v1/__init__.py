"""`/api/v1`: the same reads and commands as the pages, as JSON for programs.

One literal table of routes (`routes.ROUTES`) is the source of three things: which handler answers, what the
OpenAPI document says, and what the page of documentation shows; so none can promise what another lacks.
What a request may hold are strict records (`bodies`): an unknown field is refused, because a misspelled
``seen`` that is silently ignored would let a stale command through.

A program signs in with a token (`tokens`); a browser that is signed in may use the API as well, and sends
the token of our forms with each change. Nothing here answers another origin: there are no CORS headers.

Rejected: one hand-written OpenAPI file, which drifts from the code; a web framework of its own, which would
bring a second server, a second sign-in and a second table of rights.
"""
