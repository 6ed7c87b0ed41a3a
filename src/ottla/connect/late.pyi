from httpx import AsyncClient as AsyncClient
from httpx import HTTPError as HTTPError
from httpx import InvalidURL as InvalidURL
from httpx import Timeout as Timeout
