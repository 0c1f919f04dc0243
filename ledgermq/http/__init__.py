"""One HTTP port: routes, replies, static files and streams of events, on twisted.web.

A view is a pure function from a Request to a Reply, or to an awaitable of one, so it is tested
without a socket. Nothing in this room knows a broker or a console; both bring their views.

    requests.py     Request: what a view is given, and how it reads numbers, words and JSON of it
    replies.py      Reply and its short ways; RequestError: a refusal with field, value and limit
    routes.py       Routes: method and path -> view
    application.py  Application: guards, route, view, security headers; still without a socket
    hosts.py        the guard against DNS rebinding and foreign origins
    security.py     security headers of every reply
    static_files.py StaticFiles: files of a package with ETag and gzip
    modules.py      join_modules: modules of a page as one script
    events.py       EventHub: one stream of events for each viewer, slow ones are dropped
    limits.py       Limits of a port
    outlets.py      bodies that are written bit by bit, with back-pressure
    port.py         HttpPort: the socket; the only file that knows twisted.web

Only port.py imports twisted.web, and who opens no port does not import port.py.
"""
