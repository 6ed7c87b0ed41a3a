"""Sign-in and sign-out with the users of the brokers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.clients.errors import AuthenticationFailed, ClientError
from ottla.console.calls import COOKIE, CSRF, Console, Problem, problem_response, read_form, render, set_cookie
from ottla.console.sessions import TooManyLogins
from ottla.console.view import Page

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

_LONGEST: Final = 1000


def routes(console: Console) -> list[Route]:
    """Return the routes of the sign-in."""

    async def show(request: Request) -> Response:
        if not console.sessions.needs_login:
            return RedirectResponse("/", 303)
        return _form(request, console)

    async def sign_in(request: Request) -> Response:
        try:
            return await _sign_in(request, console)
        except Problem as problem:
            return problem_response(request, console, problem)

    async def sign_out(request: Request) -> Response:
        token = request.cookies.get(COOKIE, "")
        try:
            form = await read_form(request)
            if not console.sessions.is_csrf(token, form.get(CSRF, "")):
                raise Problem(403, "The form is not from this console")
        except Problem as problem:
            return problem_response(request, console, problem)
        await run_in_threadpool(console.sessions.sign_out, token)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, path="/")
        return response

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", sign_in, methods=["POST"]),
        Route("/logout", sign_out, methods=["POST"]),
    ]


def _form(request: Request, console: Console, problem: str = "", status: int = 200) -> Response:
    token = request.cookies.get(COOKIE, "") or console.sessions.new_token()
    more = {"problem": problem, "next": safe_target(request.query_params.get("next", ""))}
    page = Page("Sign in", {"error": problem}, template="login.html", status=status, more=more)
    response = render(request, console, page, token, None)
    set_cookie(request, response, token)
    return response


async def _sign_in(request: Request, console: Console) -> Response:
    token = request.cookies.get(COOKIE, "")
    form = await read_form(request)
    if not console.sessions.is_csrf(token, form.get(CSRF, "")):
        return _form(request, console, "The form was too old: please repeat.", 403)
    user, password = form.get("user", ""), form.get("password", "")
    if not user or max(len(user), len(password)) > _LONGEST:
        return _form(request, console, "Enter a user and a password.", 400)
    try:
        new = await run_in_threadpool(console.sessions.sign_in, user, password)
    except AuthenticationFailed:
        # The delay limits guesses; the brokers delay, too.
        await asyncio.sleep(console.settings.failed_login_delay_s)
        logger.info("Refused a sign-in from %s", request.client.host if request.client else "-")
        return _form(request, console, "The brokers do not accept this user and password.", 401)
    except TooManyLogins as error:
        return _form(request, console, str(error), 503)
    except ClientError as error:
        return _form(request, console, " ".join(str(error).split()), 503)
    await run_in_threadpool(console.sessions.sign_out, token)
    response = RedirectResponse(safe_target(form.get("next", "")) or "/", 303)
    set_cookie(request, response, new)
    return response


def safe_target(target: str) -> str:
    """Return a path of this console; "" for any other address."""
    if not target.startswith("/") or target[1:2] in ("/", "\\") or "\\" in target or not target.isprintable():
        return ""
    return target
