"""The console: a cluster's state and its operations over HTTP, for a page and for programs.

    shapes/        what the API takes and gives: typed, and the one source of its OpenAPI file
    routes.py      the table of addresses: method, path, what goes in, what comes out
    openapi.py     the OpenAPI document of that table
    openapi.json   the same, as it is served at /api/v1/openapi.json

It is a program of its own that asks brokers and name servers as any tool does: it serves Apache's
clusters as well, and no broker's turn pays for what somebody looks at. Everything that the page
shows or does goes through this API. Start with routes.py.
"""
