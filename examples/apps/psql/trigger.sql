-- Notifies whenever an invoice is paid, whoever writes it and with whatever tool.
CREATE TABLE IF NOT EXISTS invoices (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item            text NOT NULL,
    customer        text NOT NULL,
    paid            boolean NOT NULL DEFAULT false,
    dedup_key       text,
    notification_id bigint
);

-- It runs as whoever updates the invoice, who needs the role outboxd_app; if not all of them shall have it, make it
-- SECURITY DEFINER, owned by a login that has, with SET search_path = pg_catalog, pg_temp.
CREATE OR REPLACE FUNCTION notify_of_payment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.notification_id := outboxd.notify(NEW.item, NEW.customer, jsonb_build_object('invoice', NEW.id),
        dedup_key => coalesce(NEW.dedup_key, 'invoice-' || NEW.id));
    RETURN NEW;
END $$;

-- BEFORE, to keep the id with the invoice; a trigger that only notifies is AFTER and says PERFORM outboxd.notify(…).
-- The condition stands in WHEN: other updates do not even call the function.
CREATE OR REPLACE TRIGGER notify_of_payment BEFORE UPDATE OF paid ON invoices
    FOR EACH ROW WHEN (NEW.paid AND NOT OLD.paid) EXECUTE FUNCTION notify_of_payment();
