-- A plan is applied as a whole, by joins of whole tables. An index made staging half as fast, and slower with each million.

DROP INDEX idx_staging_plan_run;
