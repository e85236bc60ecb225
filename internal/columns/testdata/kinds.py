"""Writes the files beside it, with pyarrow 26."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet

utc = datetime.timezone.utc
struct = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
table = pa.table({
    "i8": pa.array([1, None], pa.int8()),
    "u64": pa.array([2**64 - 1, 0], pa.uint64()),
    "f32": pa.array([0.1, float("nan")], pa.float32()),
    "f16": pa.array([0.1, 1], pa.float16()),
    "f64": [0.1, None],
    "b": [True, None],
    "s": ['é"x', None],
    "bin": pa.array([b"\xff\x00", None], pa.binary()),
    "fsb": pa.array([b"ab", b"cd"], pa.binary(2)),
    "d": pa.array([datetime.date(2026, 1, 2), datetime.date(1969, 12, 31)]),
    "ts": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 600000), datetime.datetime(1969, 1, 1, 0, 0, 0, 500000)], pa.timestamp("us")),
    "tz": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=utc), None], pa.timestamp("ms", "UTC")),
    "berlin": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=utc), None], pa.timestamp("s", "Europe/Berlin")),
    "tm": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
    "dec": pa.array([Decimal("-0.05"), Decimal("123.45")], pa.decimal128(10, 2)),
    "l": pa.array([[1, None], []], pa.list_(pa.int32())),
    "ll": pa.array([[[1.5], []], None]),
    "st": pa.array([{"a": 1, "b": ["x"]}, None]),
    "ls": pa.array([[{"a": 1, "b": [2, 3]}, {"a": None, "b": []}], [None]], pa.list_(struct)),
    "dict": pa.array(["x", "y"]).dictionary_encode(),
    "fsl": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
    "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    "n": pa.nulls(2),
    "ls2": pa.array(["a", None], pa.large_string()),
    "sv": pa.array(["v", None], pa.string_view()),
    "dur": pa.array([1500, None], pa.duration("ms")),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None])),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16))),
})
pyarrow.parquet.write_table(table, "kinds.parquet")
pyarrow.parquet.write_table(table, "plain.parquet", store_schema=False)
texts = pa.table({"text": [f"the text {i // 20 % 2}" for i in range(200)]})
pyarrow.parquet.write_table(texts, "lz4.parquet", compression="lz4", use_dictionary=False, store_schema=False, write_statistics=False)
