"""Journals as tables: the read side of the format `godwit`.

Modules, from Spark's call to the bytes of a chunk:

    data_source       the data source `godwit`, which Spark finds through `pyspark_godwit`
    stream            offsets, admission and lost rows of a stream, on the driver
    options           the options of a read, checked before anything is read
    offsets           positions of shards, ranges of rows, and which rows are lost
    schema            the journal's typed table, as Spark's and Arrow's schemas (`journal.json`)
    reader            reads a range chunk by chunk and yields Arrow batches
    decoder           decodes chunks, by column where possible, otherwise by row
    column_decoder    decodes chunks by column, without a Python object per value
    msgpack_values    MessagePack values read at many offsets at once
    row_decoder       decodes chunks row by row
    partial_sums      adds up chunks where they are read, instead of decoding rows
"""
