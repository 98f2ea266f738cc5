"""The HTTP server: Litestar routes, wire schemas and pure rendering over one `Backend`.

A dialect (an API that clients speak) is a folder: `schema` says what clients may send, `render` words the
neutral stream of deltas, `routes` joins them. Everything between is shared:

    body      bytes -> a schema's value, or a RequestError that names the field
    reply     deltas of one request, carried from the backend's threads to the event loop
    answer    the one way a request is answered, streamed or whole, and given up when the client leaves
    boundary  errors -> HTTP
    auth      the API key; neighbours: which names and web pages are let in
    timing    where a request's time went, as a header; lag: how long the event loop was kept
    app       the routes; serve: the socket and the process's signals
"""
