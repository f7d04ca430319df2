-- Takes a rule's id and how many of its planned firings will not come.
UPDATE schedules SET occurrences = greatest(0, occurrences - $2) WHERE id = $1
