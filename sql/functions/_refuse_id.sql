-- Refuses an id that its writer chose: see the trigger ids_are_drawn_by_the_server, whose condition decides.
CREATE OR REPLACE FUNCTION outboxd._refuse_id() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'id % was not drawn by this INSERT', NEW.id USING ERRCODE = 'generated_always',
        HINT = 'Leave id out or write DEFAULT, without OVERRIDING SYSTEM VALUE. Where a value of the same INSERT calls notify(), call it in a statement of its own.';
END $$;
