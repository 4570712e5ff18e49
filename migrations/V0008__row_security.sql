-- Row level security that somebody switches on hides nothing from those whom the grants let in: who may do what is said in
-- grants.sql alone. Without these, switching it on would make the daemon see empty tables and say nothing. They do nothing
-- until then; a DBA who wants to restrict rows adds policies AS RESTRICTIVE.
--
-- Tables of later migrations need theirs: kept by faults::sessions::every_table_has_a_policy_that_lets_the_grants_decide.
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT c.relname FROM pg_catalog.pg_class c
                 WHERE c.relnamespace = 'outboxd'::pg_catalog.regnamespace AND c.relkind = 'r' ORDER BY 1 LOOP
        EXECUTE format('CREATE POLICY grants_decide ON outboxd.%I USING (true) WITH CHECK (true)', name);
    END LOOP;
END $$;
