"""One request: who sends it, its query and form, and its answer as HTML or JSON.

A page is a function from a `Call` to a `Page` or a `Done`. It runs in a thread, because it waits for brokers.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ottla.clients import errors
from ottla.clients.admin import PartialFailure
from ottla.common.failure import Failure
from ottla.console.sessions import Session, Sessions
from ottla.console.settings import ConsoleSettings
from ottla.console.view import Page, url
from ottla.registry_client import RegistryClientError
from ottla.web.guard import USER
from ottla.web.responses import json_response

if TYPE_CHECKING:
    import jinja2
    from starlette.requests import Request


COOKIE: Final = "ottla_console"
CSRF: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"
_MOST_FIELDS: Final = 200


class Problem(Exception):
    """An answer with an error: a status, a message, and what to do next."""

    def __init__(self, status: int, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.advice = advice


class Done(NamedTuple):
    """The answer to a change: a browser goes to `target`, which shows `done`; a program gets `data`."""

    target: str
    done: str
    data: dict[str, Any]


# Fixed texts: a link must not make the console say anything else.
DONE: Final[Mapping[str, str]] = {
    "created": "Created.",
    "deleted": "Deleted.",
    "altered": "Changed.",
    "records-deleted": "The records were deleted.",
    "registered": "The schema is registered.",
    "added": "Partitions were added.",
    "produced": "The record was written.",
    "reset": "The offsets were changed.",
    "move-cancelled": "The moves were cancelled: the replicas stay where they were.",
    "aborted": "The transaction was aborted.",
    "connector": "The worker accepted the request; the state follows in some seconds.",
    "rules-added": "The rules were added.",
    "rule-removed": "The rule was removed.",
    "user-set": "The user has this password now.",
    "user-removed": "The user was removed.",
    "quota-set": "The quota was changed.",
    "redriven": "The dead letters were written back to their topics.",
    "redriven-part": "Some of the dead letters were written back to their topics. Redrive again for the others.",
}


# Each slow page keeps a thread and connections for seconds; other pages must stay quick beside them.
_slow_pages: Final = threading.BoundedSemaphore(8)


@contextmanager
def slow_page() -> Iterator[None]:
    """Limit the pages that take seconds. Raises Problem if too many run."""
    if not _slow_pages.acquire(blocking=False):
        raise Problem(503, "Too many slow pages run now", "Try again in some seconds.")
    try:
        yield
    finally:
        _slow_pages.release()


@dataclass(frozen=True, slots=True)
class Console:
    """The state that all requests share."""

    settings: ConsoleSettings
    sessions: Sessions
    templates: jinja2.Environment
    parts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    console: Console
    session: Session
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def settings(self) -> ConsoleSettings:
        return self.console.settings

    @property
    def admin(self) -> Any:
        return self.session.admin

    @property
    def may_change(self) -> bool:
        """Whether forms for changes are shown. The brokers decide about each change."""
        return not self.settings.read_only

    def check_may_change(self) -> None:
        """Raise Problem if this console is read-only."""
        if not self.may_change:
            raise Problem(403, "This console is read-only", "It was started with --read-only.")

    def check_confirmed(self, name: str, verb: str = "delete") -> None:
        """Raise Problem unless the user has typed this name (`view.confirmation`)."""
        if self.form.get("confirm", "") != name:
            raise Problem(400, f"The name does not match: nothing was {verb}d", f"Type {name} to {verb} it.")

    def command(self, *words: str) -> str:
        """Return the `ottla` command that does the same, to be pasted in a shell."""
        given = [*words, "-b", self.settings.bootstrap]
        if self.settings.uses_sasl:
            given += ["--command-config", "client.properties"]
        return shlex.join(["ottla", *given])

    def number(self, name: str, default: int, most: int) -> int:
        """Return a number of the query, from 0 to `most`. Raises Problem."""
        return whole(name, self.query.get(name) or str(default), most)


def whole(name: str, text: str, most: int = 2**63 - 1) -> int:
    """Return a whole number from 0 to `most`. Raises Problem."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdecimal()) or len(stripped) > 19 or int(stripped) > most:
        raise Problem(400, f"{name} is {text[:40]!r}", f"It must be a whole number from 0 to {most:,}.")
    return int(stripped)


Handler = Callable[[Call], "Page | Done | Response"]


def wants_json(request: Request) -> bool:
    """Whether the answer is JSON: `?format=json`, or a program that accepts JSON and not HTML."""
    if request.query_params.get("format"):
        return request.query_params["format"] == "json"
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


async def answer(request: Request, console: Console, handler: Handler) -> Response:
    """Answer a request by a handler."""
    token = request.cookies.get(COOKIE, "")
    fresh = "" if token else console.sessions.new_token()
    try:
        form = await _form(request, console, token)
        session = await run_in_threadpool(console.sessions.find, token)
        if session is None:
            response = _to_login(request)
        else:
            request.scope["state"][USER] = session.user or "-"
            query = dict(request.query_params)
            call = Call(console, session, request.url.path, request.path_params, query, form)
            if request.method == "POST":
                call.check_may_change()
            found = await run_in_threadpool(handled, handler, call)
            response = render(request, console, found, token or fresh, session)
    except Problem as problem:
        response = problem_response(request, console, problem, token or fresh)
    except errors.AuthenticationFailed:
        console.sessions.sign_out(token)
        response = _to_login(request)
    if fresh and not console.sessions.needs_login:
        set_cookie(request, response, fresh)
    return response


def set_cookie(request: Request, response: Response, token: str) -> None:
    """Give the browser its token. Scripts cannot read it, and other sites do not send it."""
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/")


async def _form(request: Request, console: Console, token: str) -> dict[str, str]:
    if request.method != "POST":
        return {}
    form = await read_form(request)
    given = form.pop(CSRF, "") or request.headers.get(CSRF_HEADER, "")
    if not console.sessions.is_csrf(token, given):
        raise Problem(403, "The form is too old, or not from this console", "Load the page again, then repeat.")
    return form


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises Problem."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "The body must be application/x-www-form-urlencoded")
    try:
        body = (await request.body()).decode("utf-8")
        pairs = parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except (UnicodeDecodeError, ValueError) as error:
        raise Problem(400, f"The form cannot be read: {error}") from None
    return dict(pairs)


def handled(handler: Handler, call: Call) -> Page | Done | Response:
    """Run a handler. Raises Problem for errors of brokers, AuthenticationFailed for a user without a log-in."""
    try:
        return handler(call)
    except PartialFailure as failure:
        first, name = _first(failure)
        if not isinstance(first, errors.ClientError):
            raise
        _raise_problem(first, name)
    except errors.AuthenticationFailed:
        raise
    except errors.ClientError as error:
        _raise_problem(error)
    except RegistryClientError as error:
        raise Problem(502, f"Schema registry: {_one_line(error)}") from error
    except Failure as failure:
        raise Problem(400, failure.problem, " ".join(failure.advice)) from failure


_STATUS: Final[tuple[tuple[type[errors.ClientError], int], ...]] = (
    (errors.NotAuthorized, 403),
    (errors.UnknownTopicOrPartition, 404),
    (errors.GroupNotFound, 404),
    (errors.TransactionalIdNotFound, 404),
    (errors.ResourceNotFound, 404),
    (errors.TopicAlreadyExists, 409),
    (errors.NonEmptyGroup, 409),
    (errors.UnsupportedByBroker, 501),
    (errors.BrokerUnavailable, 503),
    (errors.RequestTimedOut, 504),
    (errors.BrokerError, 400),
)


def _first(failure: PartialFailure) -> tuple[BaseException, str]:
    """Return the first error of a call for several things, and the name of the thing."""
    first: BaseException = failure
    name = ""
    while isinstance(first, PartialFailure):
        key, first = next(iter(first.errors.items()))
        name = str(key)
    return first, name


def _raise_problem(error: errors.ClientError, name: str = "") -> NoReturn:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 502)
    # The request was valid: brokers that elect leaders, or whose disks fail, cannot answer it now.
    status = 503 if status == 400 and error.retriable else status
    message = _one_line(error)
    raise Problem(status, message if name in message else f"{name}: {message}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _to_login(request: Request) -> Response:
    if wants_json(request):
        return json_response({"error": "Sign in first", "status": 401}, 401)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    wanted = target if request.method == "GET" and target != "/" else None
    return RedirectResponse(url("login", next=wanted), 303)


def render(
    request: Request, console: Console, found: Page | Done | Response, token: str, session: Session | None
) -> Response:
    """Return a page, or the answer to a change, as HTML or JSON."""
    if isinstance(found, Response):
        return found
    if isinstance(found, Done):
        if wants_json(request):
            return json_response({"done": DONE[found.done], **found.data})
        separator = "&" if "?" in found.target else "?"
        return RedirectResponse(f"{found.target}{separator}done={found.done}", 303)
    if wants_json(request):
        extra = {"command": found.command} if found.command else {}
        return json_response({**found.data, **extra}, found.status)
    here = [(name, value) for name, value in request.query_params.multi_items() if name not in ("done", "format")]
    html = console.templates.get_template(found.template).render(
        page=found,
        **found.more,
        csrf=console.sessions.csrf(token) if token else "",
        user=session.user if session else "",
        signed_in=session is not None,
        uses_login=console.sessions.needs_login,
        settings=console.settings,
        done=DONE.get(request.query_params.get("done", "")),
        json_url=f"{request.url.path}?{urlencode([*here, ('format', 'json')])}",
        here=request.url.path,
        query=dict(here),
        url=url,
    )
    headers = {"vary": "Accept"}
    return HTMLResponse(html, found.status, headers)


def problem_response(request: Request, console: Console, problem: Problem, token: str = "") -> Response:
    """Return the answer for a problem."""
    data = {"error": problem.message, "advice": problem.advice, "status": problem.status}
    page = Page(
        _TITLES.get(problem.status, "This failed"),
        data,
        lead=problem.message,
        tone="critical",
        status=problem.status,
        template="problem.html",
        more={"advice": problem.advice},
    )
    session = console.sessions.find(token) if token else None
    return render(request, console, page, token, session)


_TITLES: Final = {
    400: "The request is not valid",
    403: "Not allowed",
    404: "Not found",
    503: "The cluster cannot be reached",
}


@cache
def templates() -> jinja2.Environment:
    """Return the templates. Each value is escaped."""
    import jinja2  # noqa: PLC0415

    return jinja2.Environment(
        loader=jinja2.PackageLoader("ottla.console", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
