-- Why a rule could not be planned at the last look, such as a time zone that a machine does not know.

ALTER TABLE schedules ADD COLUMN problem TEXT;
