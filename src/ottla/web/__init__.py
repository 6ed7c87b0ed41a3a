"""HTTP servers on starlette and uvicorn: listeners with TLS, credentials, limits, error bodies, start and stop.

The schema registry and the REST proxy are applications on it. Needs one of their extras.

Read `listeners` (addresses, TLS, the check for exposed listeners), then `server` (`serve` runs an application until a
stop), then `connection` (limits of time and size for headers) and `guard` (limits of bodies, access log), then what
applications use for each request: `credentials`, `responses`, `errors`.
"""
