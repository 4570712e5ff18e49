// pgx 4. With pgx 5 the import ends in /v5, the setting is default_query_exec_mode=cache_describe, and a transaction is
// pgx.BeginFunc(ctx, conn, …).
//
//	DATABASE_URL=postgres://my_app@db/app go run pgx.go
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/url"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v4"
)

var (
	ctx     = context.Background()
	errUndo = errors.New("rolled back on purpose")
	failed  = false
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pgx prepares every statement it sees; PgBouncer in transaction mode does not bear that before its version 1.21. So
// that it only remembers the types:
func connect() *pgx.Conn {
	address, err := url.Parse(os.Getenv("DATABASE_URL"))
	must(err)
	query := address.Query()
	query.Set("statement_cache_mode", "describe")
	address.RawQuery = query.Encode()
	conn, err := pgx.Connect(ctx, address.String())
	must(err)
	return conn
}

type write func(tx pgx.Tx, topic string, dedupKey *string) (*int64, error)

// One transaction: the order and its notification. The id, or nil if the dedup key was taken.
func order(conn *pgx.Conn, how write, topic string, dedupKey *string, undo bool) (id *int64, err error) {
	err = conn.BeginFunc(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (item) VALUES ($1)", topic); err != nil {
			return err
		}
		id, err = how(tx, topic, dedupKey)
		if err == nil && undo {
			return errUndo
		}
		return err
	})
	return id, err
}

var payload = map[string]string{"text": "Thank you"}

// pgx binds by the type the server tells. Unsaid, the payload is text, which a map is not: $3::jsonb.
func byNotify(tx pgx.Tx, topic string, dedupKey *string) (*int64, error) {
	var id int64
	err := tx.QueryRow(ctx, "SELECT outboxd.notify($1, $2, $3::jsonb, dedup_key => $4)", topic, "device-1", payload, dedupKey).Scan(&id)
	return &id, err
}

// No row if the key is taken. DO NOTHING names no columns: the role may not read dedup_key.
func byInsert(tx pgx.Tx, topic string, dedupKey *string) (*int64, error) {
	var id int64
	err := tx.QueryRow(ctx, `INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key)
		VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING id`, topic, "device-1", payload, dedupKey).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &id, err
}

func prove(conn *pgx.Conn, way string, how write, status string, repeated func(first *int64) *int64) {
	topic := fmt.Sprintf("pgx-%08x.%s", rand.Uint32(), way)
	first, err := order(conn, how, topic+".commit", nil, false)
	must(err)
	orders, ids := written(topic + ".commit")
	check(way, "commit", []int{orders, len(ids)}, []int{1, 1})
	check(way, "returning", []int64{*first}, ids)
	var found string
	must(conn.QueryRow(ctx, "SELECT outboxd.status($1)", *first).Scan(&found))
	switch found {
	case "QUEUED", "PROCESSING", "SENT", "FAILED": // A running instance may be further already.
		found = status
	}
	check(way, "status", found, status)
	if _, err = order(conn, how, topic+".rollback", nil, true); err != errUndo {
		must(err)
	}
	orders, ids = written(topic + ".rollback")
	check(way, "rollback", []int{orders, len(ids)}, []int{0, 0})
	key := "order-4711"
	one, err := order(conn, how, topic+".dedup", &key, false)
	must(err)
	two, err := order(conn, how, topic+".dedup", &key, false)
	must(err)
	orders, ids = written(topic + ".dedup")
	// Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
	check(way, "dedup", []interface{}{orders, ids, two}, []interface{}{2, []int64{*one}, repeated(one)})
}

// The orders and the notifications' ids, as another session of the same login sees them.
func written(topic string) (orders int, ids []int64) {
	conn := connect()
	defer conn.Close(ctx)
	must(conn.QueryRow(ctx, "SELECT count(*) FROM orders WHERE item = $1", topic).Scan(&orders))
	must(conn.QueryRow(ctx, "SELECT array_agg(id ORDER BY id) FROM outboxd.notification_log WHERE topic = $1", topic).Scan(&ids))
	return orders, ids
}

func check(way, name string, found, wanted interface{}) {
	if reflect.DeepEqual(found, wanted) {
		fmt.Println("ok", way, name)
		return
	}
	failed = true
	fmt.Printf("not ok %s %s: %v instead of %v\n", way, name, found, wanted)
}

func main() {
	rand.Seed(time.Now().UnixNano())
	conn := connect()
	defer conn.Close(ctx)
	prove(conn, "notify", byNotify, "QUEUED", func(first *int64) *int64 { return first })
	prove(conn, "insert", byInsert, "PENDING", func(*int64) *int64 { return nil })
	if failed {
		os.Exit(1)
	}
}
