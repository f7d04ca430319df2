-- Days as partitions: made on demand, dropped as a whole, so that old rows never leave holes behind.

-- Takes a partitioned table and a day (UTC); makes the partition when it is missing and says whether it did.
CREATE FUNCTION godwit_ensure_day(parent text, day date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    part text := parent || '_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- One at a time, and look again: another session may have made it meanwhile.
    PERFORM pg_advisory_xact_lock(hashtext('godwit_ensure_day'));
    -- Not to_regclass: it remembers that there was none, and waiting for an advisory lock does not make it forget.
    IF EXISTS (SELECT FROM pg_class WHERE relname = part AND pg_table_is_visible(oid)) THEN
        RETURN false;
    END IF;
    -- Attaching lets readers and writers of the parent go on; CREATE ... PARTITION OF would stop them.
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
    EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        parent, part, day || ' 00:00:00+00', (day + 1) || ' 00:00:00+00'
    );
    RETURN true;
END $$;

-- Takes a partitioned table and a day (UTC); drops the partitions of all earlier days and returns their names.
CREATE FUNCTION godwit_drop_days(parent text, before date) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT child.relname
        FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = parent::regclass AND child.relname < parent || '_' || to_char(before, 'YYYYMMDD')
        ORDER BY 1
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        RETURN NEXT part;
    END LOOP;
END $$;
