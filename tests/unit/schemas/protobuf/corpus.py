"""Protobuf schemas that have each element of the syntax: valid ones, and ones with an error."""

from __future__ import annotations

from typing import Final

VALID: Final[dict[str, str]] = {
    "empty": "",
    "only syntax": 'syntax = "proto3";',
    "only comment": "// nothing\n/* at\n * all */\n",
    "proto2 without syntax": "message A { optional string a = 1; }",
    "proto2": 'syntax = "proto2";\nmessage A { required string a = 1; optional int32 b = 2; repeated bytes c = 3; }',
    "single quotes": "syntax = 'proto3'; option java_package = 'a.b'; message A { string a = 1; }",
    "all scalars": """\
syntax = "proto3";
message A {
  bool a = 1; bytes b = 2; double c = 3; fixed32 d = 4; fixed64 e = 5; float f = 6; int32 g = 7; int64 h = 8;
  sfixed32 i = 9; sfixed64 j = 10; sint32 k = 11; sint64 l = 12; string m = 13; uint32 n = 14; uint64 o = 15;
}""",
    "comments everywhere": """\
// first
syntax /* a */ = /* b */ "proto3" /* c */ ; // d
/* block
   // nested line */
package /* e */ a.b.c ; // f
message /* g */ A { // h
  // i
  string /* j */ a /* k */ = /* l */ 1 /* m */ ; // n
  /* o */ int32 b = 2 [ /* p */ deprecated /* q */ = true /* r */ ] ; // s
}
// end""",
    "stray semicolons": 'syntax = "proto3";; message A {; string a = 1;; message B {}; enum E { X = 0;; }; };;',
    "carriage returns": 'syntax = "proto3";\r\npackage a;\r\nmessage A {\r\n  string a = 1;\r\n}\r\n',
    "imports": """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import public "google/protobuf/duration.proto";
import weak "google/protobuf/any.proto";
import 'google/type/money.proto';
package p;
message A {
  google.protobuf.Timestamp t = 1;
  google.protobuf.Duration d = 2;
  .google.protobuf.Any a = 3;
  google.type.Money m = 4;
}""",
    "file options": """\
syntax = "proto3";
option java_package = "io.example";
option java_outer_classname = "Outer";
option java_multiple_files = true;
option java_string_check_utf8 = true;
option optimize_for = SPEED;
option go_package = "example.io/a;b";
option cc_enable_arenas = false;
option objc_class_prefix = "X";
option csharp_namespace = "Io.Example";
option php_namespace = "Io\\\\Example";
option ruby_package = "Io::Example";
option deprecated = true;
message A {}""",
    "nested types": """\
syntax = "proto3";
package a;
message A {
  message B {
    message C { string s = 1; enum D { X = 0; } D d = 2; }
    C c = 1;
    repeated C.D ds = 2;
  }
  enum E { option allow_alias = true; E0 = 0; E1 = 1; E2 = 1; }
  B b = 1;
  A.B.C c = 2;
  .a.A.B.C.D d = 3;
  E e = 4;
  A self = 5;
}
enum Top { T0 = 0; T1 = -1; T2 = 0x10; }
message Z { A.E e = 1; Top top = 2; }""",
    "oneofs": """\
syntax = "proto3";
message A {
  int32 first = 1;
  oneof choice {
    string a = 2;
    int64 b = 3 [deprecated = true];
    B c = 4;
  }
  string between = 5;
  oneof other { bool d = 6; }
  message B {}
}""",
    "maps": """\
syntax = "proto3";
message A {
  map<string, int32> a = 1;
  map < int64 , B > b = 2;
  map<bool, .A.B> c = 3 [deprecated = true];
  map<fixed32, E> d = 4;
  message B { map<string, A> a = 1; }
  enum E { X = 0; }
}""",
    "maps in proto2": "message A { map<string, string> a = 1; optional string b = 2; }",
    "proto3 optional": 'syntax = "proto3"; message A { optional string a = 1; optional A b = 2; A c = 3; }',
    "reserved": """\
syntax = "proto3";
message A {
  reserved 2, 15, 9 to 11, 40 to max;
  reserved "foo", 'bar';
  reserved 20 to 20;
  string a = 1;
}
enum E {
  reserved 3, 5 to 7;
  reserved "X";
  option deprecated = true;
  A0 = 0;
}""",
    "extensions": """\
syntax = "proto2";
package e;
message A {
  extensions 100 to 199, 300;
  extensions 1000 to max;
  optional int32 a = 1;
  extend A { optional int32 inner = 150; }
}
extend A {
  optional string outer = 151 [deprecated = true];
  repeated int32 many = 152 [packed = true];
}
extend .e.A { optional B b = 153; }
message B {}""",
    "groups": """\
syntax = "proto2";
message A {
  optional group G = 1 { required string a = 1; optional int32 b = 2; }
  repeated group Hs = 2 { optional string c = 1; }
  oneof o { string s = 3; group Third = 4 { optional int32 x = 1; } }
}""",
    "defaults": """\
syntax = "proto2";
message A {
  optional string s = 1 [default = "a \\"quoted\\" 'text'\\n"];
  optional int32 i = 2 [default = -5];
  optional int64 h = 3 [default = 0x7F];
  optional double d = 4 [default = 1.5e10];
  optional double n = 5 [default = nan];
  optional float f = 6 [default = -inf];
  optional bool b = 7 [default = true, deprecated = true];
  optional E e = 8 [default = Y];
  optional bytes y = 9 [default = "abc"];
  optional string j = 10 [default = "x", json_name = "jj", deprecated = false];
  enum E { X = 0; Y = 1; }
}""",
    "json names": 'syntax = "proto3"; message A { string a_b = 1 [json_name = "ab"]; int32 c = 2 [json_name="C"]; }',
    "field options": """\
syntax = "proto3";
message A {
  string a = 1 [ctype = CORD];
  int64 b = 2 [jstype = JS_STRING, deprecated = true];
  repeated int32 c = 3 [packed = false];
  string d = 4 [debug_redact = true];
  string e = 5 [retention = RETENTION_SOURCE];
  string f = 6 [targets = TARGET_TYPE_FIELD, targets = TARGET_TYPE_FILE];
}""",
    "custom options": """\
syntax = "proto2";
package c;
import "google/protobuf/descriptor.proto";
option (file_option) = "f";
option (nested).a = 1;
option (nested).b = "two";
option (nested).c.a = 3;
message Opt { optional int32 a = 1; optional string b = 2; optional Opt c = 3;
  repeated int32 d = 4; repeated Opt e = 5; }
extend google.protobuf.FileOptions { optional string file_option = 50000; optional Opt nested = 50001; }
extend google.protobuf.FieldOptions { optional Opt field_option = 50002; repeated string tags = 50003; }
extend google.protobuf.MessageOptions { optional bool message_option = 50004; }
extend google.protobuf.EnumValueOptions { optional double value_option = 50005; }
message A {
  option (message_option) = true;
  optional string a = 1 [(field_option) = {a: 1, b: "x" c {a: 2} d: [1, 2, 3]; e: [{a: 1}, {a: 2}]}];
  optional string b = 2 [(field_option).a = 5, (.c.field_option).c.b = "deep"];
  optional string c = 3 [(tags) = "one", (tags) = "two"];
  optional string d = 4 [(field_option) = {d: [7]}];
  optional string e = 5 [(field_option) = {d: []}];
  optional string f = 6 [(field_option) = {}];
  optional string g = 7 [(field_option) = {e {a: 1} e {a: 2} d: 1 d: 2}];
}
enum E { X = 0 [(value_option) = 1.5, deprecated = true]; }""",
    "confluent meta": """\
syntax = "proto3";
package m;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
option (confluent.file_meta).doc = "a file";
message A {
  option (confluent.message_meta) = {doc: "a message", params: [{key: "k", value: "v"}], tags: ["PII"]};
  confluent.type.Decimal price = 1 [(confluent.field_meta) = {
    params: [{value: "8", key: "precision"}, {value: "3", key: "scale"}]
  }];
  string name = 2 [(confluent.field_meta).tags = "PII", (confluent.field_meta).tags = "GDPR"];
  enum E { option (confluent.enum_meta).doc = "an enum"; X = 0 [(confluent.enum_value_meta).doc = "a value"]; }
}""",
    "services": """\
syntax = "proto3";
package s;
service Empty {}
service S {
  option deprecated = true;
  rpc Unary (A) returns (B);
  rpc ClientStream (stream A) returns (.s.B) {}
  rpc ServerStream (A) returns (stream s.B) { option deprecated = true; option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Both(stream A)returns(stream B){;}
}
message A {}
message B {}""",
    "keywords as names": """\
syntax = "proto3";
message message { string string = 1; int32 int32 = 2; bool import = 3; package package = 4; string syntax = 5; }
message package { string option = 1; string oneof = 2; string rpc = 3; string returns = 4; string to = 5; }
enum enum { max = 0; }""",
    "escapes": """\
syntax = "proto3";
import "google/protobuf/descriptor.proto";
option java_package = "tab\\t bell\\a bs\\b ff\\f nl\\n cr\\r vt\\v q\\" a\\' b\\\\ hex\\x41\\X7e oct\\101\\7 other\\q";
option go_package = "one" 'two' "three";
option ruby_package = "\\303\\251 é 中 😀";
message A {}""",
    "numbers": """\
syntax = "proto2";
message A {
  optional double a = 1 [default = 1.23456];
  optional double b = 2 [default = 1e300];
  optional float c = 3 [default = 0.0001];
  optional int32 d = 0x4 [default = 0x10];
  optional int32 e = 5 [default = 010];
  optional double f = 6 [default = -0.0];
  optional int64 g = 7 [default = 9223372036854775807];
  optional uint64 h = 8 [default = 18446744073709551615];
  optional double i = 9 [default = 2.5];
  optional double j = 10 [default = 123456789.9876];
}""",
    "field order": """\
syntax = "proto3";
message B { string z = 9; string a = 3; oneof late { string m = 8; string l = 7; } oneof early { string e = 2; }
  int32 c = 1; }
enum F { F0 = 0; F2 = 2; F1 = 1; }
message A { reserved 9, 5 to 6, 3; reserved "z", "a"; }""",
    "relative names": """\
syntax = "proto3";
package a.b.c;
message A { B b = 1; c.B c = 2; b.c.B d = 3; a.b.c.B e = 4; .a.b.c.B f = 5; B.A g = 6; }
message B { message A { B b = 1; A a = 2; } A a = 1; }""",
    "map entry written out": """\
syntax = "proto3";
message A {
  repeated MEntry m = 1;
  message MEntry { option map_entry = true; string key = 1; int32 value = 2; }
  message B {}
  B b = 2;
}""",
    "options in oneof and extensions": """\
syntax = "proto2";
import "google/protobuf/descriptor.proto";
extend google.protobuf.OneofOptions { optional string o = 50000; }
message A {
  oneof x { option (o) = "a"; string a = 1; }
  extensions 100 to 199 [verification = UNVERIFIED];
}""",
    "enum negative and aliases": """\
syntax = "proto2";
enum E { option allow_alias = true; A = -2147483648; B = 2147483647; C = 2147483647; D = 0; }
message M { optional E e = 1 [default = A]; }""",
    "type with spaces around dots": 'syntax = "proto3"; package a; message A { message B {} a . A . B b = 1; }',
    "service without messages of its own": """\
syntax = "proto3";
import "google/protobuf/empty.proto";
service S { rpc A (google.protobuf.Empty) returns (google.protobuf.Empty); }""",
    "public import without types": 'syntax = "proto3"; import public "google/protobuf/timestamp.proto";',
    "import paths": """\
syntax = "proto3";
import "google//protobuf/./timestamp.proto";
import "google\\\\protobuf/any.proto/";
import "/root/x.proto";
message A { google.protobuf.Any a = 1; google.protobuf.Timestamp t = 2; }""",
    "repeated imports": """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
message A { google.protobuf.Any a = 1; google.protobuf.Timestamp t = 2; }""",
}

# Texts with an error, and a part of the message.
INVALID: Final[dict[str, tuple[str, str]]] = {
    "not a schema": ("this is not a schema", "line 1: unexpected 'this'"),
    "a number": ("42", "unexpected '42'"),
    "edition": ('edition = "2023"; message A {}', "line 1: editions are not supported"),
    "syntax not first": ('package a; syntax = "proto3";', "'syntax' must be the first"),
    "unknown syntax": ('syntax = "proto4";', "unexpected syntax 'proto4'"),
    "open message": ('syntax = "proto3";\nmessage A {\n  string a = 1;\n', "line 4: expected a word but found the end"),
    "open comment": ("message A {} /* open", "expected a word but found '/* open'"),
    "open string": ('option java_package = "a;\nmessage A {}', "line 1: unterminated string"),
    "open string with an escaped quote": ('option java_package = "a\\"', "unterminated string"),
    "hexadecimal escape without digit": ('option java_package = "a\\\\\\xg";', "expected a hexadecimal digit"),
    "missing semicolon": ('syntax = "proto3"; message A { string a = 1 }', "expected ';' but found '}'"),
    "missing number": ('syntax = "proto3"; message A { string a; }', "expected '=' but found ';'"),
    "number is a word": ('syntax = "proto3"; message A { string a = b; }', "expected an integer but found 'b'"),
    "number of 33 bits": ('syntax = "proto3"; message A { string a = 4294967296; }', "does not fit 32 bits"),
    "required in proto3": ('syntax = "proto3"; message A { required string a = 1; }', "'required' is not permitted"),
    "no label in proto2": ("message A {\n string a = 1; }", "line 2: unexpected 'string': a field of proto2 needs"),
    "label of a map": ('syntax = "proto3"; message A { repeated map<string, string> a = 1; }', "cannot have a label"),
    "word in a service": ('syntax = "proto3"; service S { message A {} }', "unexpected 'message' in a service"),
    "word in a method": ('syntax = "proto3"; service S { rpc A (A) returns (A) { message B {} } }', "only options"),
    "method without returns": ('syntax = "proto3"; service S { rpc A (A); }', "expected 'returns'"),
    "import without quotes": ('syntax = "proto3"; import a;', "expected a quoted string"),
    "name that begins with a digit": ('syntax = "proto3"; message A { string 1a = 1; }', "cannot begin with a digit"),
    "option without value": ('syntax = "proto3"; option java_package = ;', "expected a word but found ';'"),
    "angle brackets in an option": ('syntax = "proto3"; message A { string a = 1 [(b) = <c: 1>]; }', "found '<'"),
    "unknown type": ('syntax = "proto3";\nmessage A {\n  B b = 1;\n}', "line 3: type B of field b is not defined"),
    "unknown type of map values": ('syntax = "proto3"; message A { map<string, B> b = 1; }', "type B of field b"),
    "unknown type of a method": ('syntax = "proto3"; service S { rpc A (B) returns (B); }', "message B of method A"),
    "enum as a message of a method": (
        'syntax = "proto3"; service S { rpc A (E) returns (E); } enum E { X = 0; }',
        "message E of method A",
    ),
    "unknown message to extend": ("extend B { optional string a = 100; }", "message B to extend is not defined"),
    "number used twice": (
        'syntax = "proto3";\nmessage A {\n  string a = 1;\n  string b = 1;\n}',
        "line 4: number 1 of field b is used by a",
    ),
    "number used twice in a oneof": (
        'syntax = "proto3"; message A { string a = 1; oneof o { string b = 1; } }',
        "number 1 of field b is used by a",
    ),
    "name used twice": (
        'syntax = "proto3"; message A { string a = 1;\n string a = 2; }',
        "line 2: a is already defined",
    ),
    "name of a field and a oneof": ('syntax = "proto3"; message A { string o = 1; oneof o { string b = 2; } }', "o is"),
    "message defined twice": ('syntax = "proto3"; message A {}\nmessage A {}', "line 2: A is already defined"),
    "nested message defined twice": ('syntax = "proto3"; message A { message B {} enum B { X = 0; } }', "B is already"),
    "enum values share a scope": ('syntax = "proto3"; enum A { X = 0; } enum B { X = 0; }', "X is already defined"),
    "reserved number": (
        'syntax = "proto3"; message A { reserved 2 to 4;\n string a = 3; }',
        "line 2: number 3 of a is",
    ),
    "reserved name": ('syntax = "proto3"; message A { reserved "a"; string a = 1; }', "name a is reserved"),
    "reserved range backward": ('syntax = "proto3"; message A { reserved 5 to 3; }', "5 to 3 is not a range"),
    "reserved enum value": ('syntax = "proto3"; enum E { reserved 1; X = 0; Y = 1; }', "number 1 of Y is reserved"),
    "number zero": ('syntax = "proto3"; message A { string a = 0; }', "number 0 of field a is not between"),
    "number too large": ('syntax = "proto3"; message A { string a = 536870912; }', "is not between 1 and 536870911"),
    "number of Protobuf": ('syntax = "proto3"; message A { string a = 19000; }', "reserved for Protobuf"),
    "number of an extension": ("message A { extensions 1 to 5; optional string a = 3; }", "one of the extensions"),
    "extensions in proto3": ('syntax = "proto3"; message A { extensions 1 to 5; }', "cannot have extensions"),
    "extension without a number": ("message A {} extend A { optional int32 a = 1; }", "A has no extension number 1"),
    "extension used twice": (
        "message A { extensions 1; } extend A { optional int32 a = 1; optional int32 b = 1; }",
        "extension 1 of A is used by a",
    ),
    "enum without values": ('syntax = "proto3"; enum E {}', "enum E has no values"),
    "enum does not begin with zero": ('syntax = "proto3"; enum E { X = 1; }', "must be zero in proto3"),
    "enum number used twice": ('syntax = "proto3"; enum E { X = 0; Y = 0; }', "number 0 of Y is used by X"),
    "oneof without fields": ('syntax = "proto3"; message A { oneof o {} }', "oneof o has no fields"),
    "map in a oneof": (
        'syntax = "proto3"; message A { oneof o { map<string, string> a = 1; } }',
        "cannot be in a oneof",
    ),
    "key of a map": ('syntax = "proto3"; message A { map<double, string> a = 1; }', "double cannot be the key"),
    "map of maps": ('syntax = "proto3"; message A { map<string, map<string, string>> a = 1; }', "cannot be maps"),
    "default in proto3": ('syntax = "proto3"; message A { string a = 1 [default = "b"]; }', "cannot have a default"),
    "default of another type": ('message A { optional int32 a = 1 [default = "b"]; }', "'b' is not a default of type"),
    "default that is not in the enum": (
        "message A { optional E a = 1 [default = Z]; } enum E { X = 0; }",
        "'Z' is not a default",
    ),
    "default of a message": ("message A { optional A a = 1 [default = 1]; }", "'1' is not a default of type A"),
    "group in proto3": ('syntax = "proto3"; message A { repeated group B = 1 {} }', "not permitted in proto3"),
    "method defined twice": (
        'syntax = "proto3"; message A {} service S { rpc A (A) returns (A); rpc A (A) returns (A); }',
        "A is already defined",
    ),
    "map entry without a value": (
        'syntax = "proto3"; message A { option map_entry = true; string key = 1; }',
        "message A for a map needs the fields key = 1 and value = 2",
    ),
    "bytes that the canonical string cannot have": (
        'message A { optional bytes a = 1 [default = "a b"]; }',
        "the canonical string of the schema cannot be read again",
    ),
    "package with too many parts": (f"package a{'.a' * 100};", "a package has more than 64 parts"),
    "too many options": (f"message A {{ optional string a = 1 [{'a = 1, ' * 300} b = 2]; }}", "more than 256 options"),
    "too many option statements": ("option a = 1;" * 300, "more than 256 options"),
    "name with a dash": ('syntax = "proto3"; message A-B {}', "'A-B' is not a name"),
    "nested too deeply": ('syntax = "proto3";' + "message A {" * 100, "nested deeper than 64 levels"),
}
