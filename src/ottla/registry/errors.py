"""Errors of the registry's API: status, error code and text as Confluent's registry returns them.

Clients decide by the error code, some by the text. The functions name the situation; the codes are Confluent's.
"""

from __future__ import annotations


class RegistryError(Exception):
    """The response to a request that failed. `error_code` begins with the HTTP status in most cases."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message


class InvalidValue(ValueError):
    """A record or the body of a request has a value of the wrong type or form."""


def http_error(status: int, reason: str) -> RegistryError:
    """Return an error of the HTTP layer, such as an unknown path."""
    return RegistryError(status, status, f"HTTP {status} {reason}")


def bad_request(message: str) -> RegistryError:
    """The body is not JSON, or a property has the wrong type."""
    return RegistryError(400, 400, message)


def missing_body() -> RegistryError:
    """The body is absent or `null`."""
    return RegistryError(422, 422, "The body of the request must not be null")


def subject_not_found(subject: str | None) -> RegistryError:
    """The subject has no versions, or only deleted ones."""
    return RegistryError(404, 40401, f"Subject '{_name(subject)}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject exists, the version does not."""
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(name: int | str | None = None) -> RegistryError:
    """No schema has this id or guid; or the subject has no such schema."""
    return RegistryError(404, 40403, "Schema not found" if name is None else f"Schema {name} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    """A second soft delete of a subject."""
    text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, 40404, text)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """A permanent delete without a soft delete before."""
    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(404, 40405, text)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """A second soft delete of a version."""
    text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, 40406, text)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """A permanent delete of a version without a soft delete before."""
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(404, 40407, text)


def compatibility_not_configured(subject: str) -> RegistryError:
    """The subject has no settings of its own."""
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(404, 40408, text)


def mode_not_configured(subject: str | None) -> RegistryError:
    """The subject has no mode of its own."""
    text = f"Subject '{_name(subject)}' does not have subject-level mode configured"
    return RegistryError(404, 40409, text)


def incompatible_schema(subject: str, reasons: list[str]) -> RegistryError:
    """The schema breaks the subject's compatibility level."""
    text = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]"
    )
    return RegistryError(409, 40901, text)


def invalid_schema(message: str) -> RegistryError:
    """The text is not a schema, or one of its references does not exist."""
    return RegistryError(422, 42201, message)


def invalid_version(version: object) -> RegistryError:
    """The version in the path is neither a number from 1 nor `latest`."""
    text = (
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return RegistryError(422, 42202, text)


def invalid_compatibility() -> RegistryError:
    """The compatibility level is unknown."""
    text = (
        "Invalid compatibility level. Valid values are "
        "none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive"
    )
    return RegistryError(422, 42203, text)


def invalid_mode(message: str = "") -> RegistryError:
    """The mode is unknown, or not allowed for this subject."""
    text = "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
    return RegistryError(422, 42204, message or text)


def not_permitted(message: str) -> RegistryError:
    """The mode of the subject forbids the operation."""
    return RegistryError(422, 42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Another schema references the schema to be deleted."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    """The name is reserved or has control characters."""
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> RegistryError:
    """The record exceeds the limit of the topic."""
    return RegistryError(422, 42209, "Register operation failed because schema is too large")


def invalid_rule_set(message: str) -> RegistryError:
    """A rule lacks a name or type, or its mode does not fit its list."""
    return RegistryError(422, 42210, message)


def context_not_empty(context: str) -> RegistryError:
    """The context to be deleted has subjects."""
    return RegistryError(422, 42211, f"The specified context '{context}' is not empty.")


def store_error(message: str) -> RegistryError:
    """The topic cannot be read or written."""
    return RegistryError(500, 50001, message)


def operation_timed_out(message: str) -> RegistryError:
    """The record was not acknowledged in time; it may still be written."""
    return RegistryError(500, 50002, message)


def busy(message: str) -> RegistryError:
    """The registry has too much to do; a retry may succeed."""
    return RegistryError(503, 50303, message)


def forwarding_failed(message: str) -> RegistryError:
    """The primary did not respond to a forwarded request."""
    return RegistryError(500, 50003, message)


def unknown_leader(message: str) -> RegistryError:
    """No instance is the primary at this moment."""
    return RegistryError(500, 50004, message)


def _name(subject: str | None) -> str:
    return "null" if subject is None else subject
