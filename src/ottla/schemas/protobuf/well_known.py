"""The files that each schema can import without a reference: google/protobuf, google/type and confluent.

Google's come from the packages `protobuf` and `googleapis-common-protos`; they are imported when a schema first uses
a name of them. Confluent's are the messages of its field metadata and its decimal type, of which other clients have
generated classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from ottla.schemas.protobuf.descriptor_classes import google_descriptor
from ottla.schemas.protobuf.descriptor_elements import elements_of
from ottla.schemas.protobuf.elements import ProtoFile
from ottla.schemas.protobuf.parser import parse_file

WELL_KNOWN_PREFIXES: Final = ("google.", "confluent.")
_GOOGLE: Final = {
    "google/protobuf": "any api descriptor duration empty field_mask source_context struct timestamp type wrappers",
    "google/type": (
        "calendar_period color date datetime dayofweek decimal expr fraction interval latlng money month phone_number "
        "postal_address quaternion timeofday"
    ),
}
GOOGLE_FILES: Final = tuple(f"{folder}/{name}.proto" for folder, names in _GOOGLE.items() for name in names.split())
CONFLUENT_FILES: Final = {
    "confluent/meta.proto": """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """\
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_multiple_files = true;
option java_outer_classname = "DecimalProto";
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
    "confluent/type/variant.proto": """\
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_multiple_files = true;
option java_outer_classname = "VariantProto";
message Variant { bytes metadata = 1; bytes value = 2; }
""",
}
WELL_KNOWN_FILES: Final = frozenset({*GOOGLE_FILES, *CONFLUENT_FILES})


@cache
def well_known_files() -> Mapping[str, ProtoFile]:
    """The elements of all well-known files by import path."""
    files = {path: elements_of(google_descriptor(path)) for path in GOOGLE_FILES}
    return files | {path: parse_file(text) for path, text in CONFLUENT_FILES.items()}
