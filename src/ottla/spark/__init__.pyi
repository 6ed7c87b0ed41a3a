from ottla.spark.avro_values import avro_schema as avro_schema
from ottla.spark.options import OptionError as OptionError
from ottla.spark.session import JavaMissing as JavaMissing
from ottla.spark.session import session as session
from ottla.spark.session import settings as settings
from ottla.spark.source import OttlaDataSource as OttlaDataSource
