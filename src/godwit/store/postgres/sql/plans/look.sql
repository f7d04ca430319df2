-- Lets the server look at what is staged and what is there: knowing of other runs only, it would join millions of rows one by one.
ANALYZE staging_plan, schedule_firings
