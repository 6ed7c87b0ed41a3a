"""Operation codes of the steps in Avro programs, and reasons why a value fails. The kernels compile them to C ints."""

# Operations of decoding. Those up to SKIP_NUMBER read a number first; those from RECORD on contain other steps.
# CHECK_... checks a value without a builder.
INT = 1
LONG = 2
INT_FLOAT = 3
LONG_FLOAT = 4
ENUM = 5
CHOICE = 6
CHECK_INT = 7
CHECK_ENUM = 8
SKIP_NUMBER = 9
BOOL = 10
FLOAT = 11
DOUBLE = 12
TEXT = 13
BYTES = 14
FIXED = 15
DECIMAL = 16
FIXED_DECIMAL = 17
CHECK_TEXT = 18
SKIP_BYTES = 19
SKIP_FIXED = 20
RECORD = 21
ARRAY = 22
MAP = 23
MEMBER = 24
CONSTANT = 25
NOTHING = 26
REFUSED = 27
CHECK_BOOL = 28
NESTED = 29

# Reasons why a value cannot be decoded.
CUT = 1
LONG_NUMBER = 2
RANGE = 3
LENGTH = 4
SYMBOL = 5
BRANCH = 6
UTF8 = 7
DIGITS = 8
ITEMS = 9
UNRESOLVED = 10
HEADER = 11
NO_BOOL = 12
DEPTH = 13
REST = 14

# Operations of encoding.
PUT_NULL = 1
PUT_BOOL = 2
PUT_INT8 = 3
PUT_INT16 = 4
PUT_INT32 = 5
PUT_INT64 = 6
PUT_MILLIS = 7
PUT_FLOAT = 8
PUT_DOUBLE = 9
PUT_BYTES = 10
PUT_FIXED = 11
PUT_ENUM = 12
PUT_DECIMAL = 13
PUT_FIXED_DECIMAL = 14
PUT_RECORD = 15
PUT_ARRAY = 16
PUT_MAP = 17
PUT_MEMBERS = 18

# Reasons why a value cannot be encoded.
IS_NULL = 1
OTHER_SIZE = 2
NO_SYMBOL = 3
TOO_LARGE = 4
