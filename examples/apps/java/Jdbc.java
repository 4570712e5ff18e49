// JDBC (pgjdbc 42).
//
//     DATABASE_URL=postgres://my_app@db/app java -cp postgresql.jar Jdbc.java
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;

public class Jdbc {
    static final String PAYLOAD = "{\"text\": \"Thank you\"}";

    /** Thrown inside a transaction to roll it back. */
    static class Undo extends RuntimeException {}

    interface Order {
        /** The notification's id, or null if its dedup_key was taken. */
        Long write(Connection connection, String topic, String dedupKey) throws SQLException;
    }

    static Connection connect() throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        Properties properties = new Properties();
        String[] login = url.getUserInfo().split(":", 2);
        properties.setProperty("user", login[0]);
        if (login.length > 1) properties.setProperty("password", login[1]);
        // pgjdbc prepares on the server what runs for the fifth time; PgBouncer in transaction mode does not bear that
        // before its version 1.21. 0: never.
        properties.setProperty("prepareThreshold", "0");
        return DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath(), properties);
    }

    static Long order(Connection connection, Order how, String topic, String dedupKey, boolean undo) throws SQLException {
        // Otherwise each statement is a transaction of its own, and the notification could go without the order.
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO orders (item) VALUES (?)")) {
            insert.setString(1, topic);
            insert.executeUpdate();
            Long id = how.write(connection, topic, dedupKey);
            if (undo) throw new Undo();
            connection.commit();
            return id;
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        }
    }

    static Long byNotify(Connection connection, String topic, String dedupKey) throws SQLException {
        // setString() is varchar to the server, and notify() takes it: no cast.
        String sql = "SELECT outboxd.notify(?, ?, ?, dedup_key => ?)";
        try (PreparedStatement notify = connection.prepareStatement(sql)) {
            notify.setString(1, topic);
            notify.setString(2, "device-1");
            notify.setString(3, PAYLOAD);
            notify.setString(4, dedupKey);
            ResultSet row = notify.executeQuery();
            row.next();
            return row.getLong(1);
        }
    }

    static Long byInsert(Connection connection, String topic, String dedupKey) throws SQLException {
        // A column of type jsonb does not take varchar: ?::jsonb. Generated keys by name: RETURN_GENERATED_KEYS means
        // RETURNING *, which the role may not. DO NOTHING names no columns for the same reason.
        String sql = "INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES (?, ?, ?::jsonb, ?)"
            + " ON CONFLICT DO NOTHING";
        try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id"})) {
            insert.setString(1, topic);
            insert.setString(2, "device-1");
            insert.setString(3, PAYLOAD);
            insert.setString(4, dedupKey);
            insert.executeUpdate();
            ResultSet keys = insert.getGeneratedKeys();
            return keys.next() ? keys.getLong(1) : null;
        }
    }

    static int failures = 0;

    static void prove(Connection connection, String way, Order how) throws SQLException {
        String topic = "jdbc-" + UUID.randomUUID().toString().substring(0, 8) + "." + way;
        Long first = order(connection, how, topic + ".commit", null, false);
        check(way, "commit", counts(topic + ".commit"), List.of(1L, 1L));
        check(way, "returning", List.of(first), ids(topic + ".commit"));
        String begins = way.equals("notify") ? "QUEUED" : "PENDING";
        String status = status(first);
        // A running instance may be further already.
        boolean isFurther = List.of("QUEUED", "PROCESSING", "SENT", "FAILED").contains(status);
        check(way, "status", isFurther ? begins : status, begins);
        try {
            order(connection, how, topic + ".rollback", null, true);
        } catch (Undo undone) {
            // As wanted.
        }
        check(way, "rollback", counts(topic + ".rollback"), List.of(0L, 0L));
        Long one = order(connection, how, topic + ".dedup", "order-4711", false);
        Long two = order(connection, how, topic + ".dedup", "order-4711", false);
        // Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
        Long again = way.equals("notify") ? one : null;
        check(way, "dedup", Arrays.asList(counts(topic + ".dedup"), ids(topic + ".dedup"), two), Arrays.asList(List.of(2L, 1L), List.of(one), again));
    }

    static List<Long> counts(String topic) throws SQLException {
        return List.of(ask("SELECT count(*) FROM orders WHERE item = ?", topic).get(0), (long) ids(topic).size());
    }

    static List<Long> ids(String topic) throws SQLException {
        return ask("SELECT id FROM outboxd.notification_log WHERE topic = ? ORDER BY id", topic);
    }

    static List<Long> ask(String sql, String parameter) throws SQLException {
        try (Connection connection = connect(); PreparedStatement select = connection.prepareStatement(sql)) {
            select.setString(1, parameter);
            List<Long> found = new ArrayList<>();
            for (ResultSet rows = select.executeQuery(); rows.next();) found.add(rows.getLong(1));
            return found;
        }
    }

    static String status(Long id) throws SQLException {
        try (Connection connection = connect(); PreparedStatement select = connection.prepareStatement("SELECT outboxd.status(?)")) {
            select.setLong(1, id);
            ResultSet row = select.executeQuery();
            row.next();
            return row.getString(1);
        }
    }

    static void check(String way, String name, Object found, Object wanted) {
        boolean good = Objects.equals(found, wanted);
        if (!good) failures++;
        System.out.println(good ? "ok " + way + " " + name : "not ok " + way + " " + name + ": " + found + " instead of " + wanted);
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = connect()) {
            prove(connection, "notify", Jdbc::byNotify);
            prove(connection, "insert", Jdbc::byInsert);
        }
        System.exit(failures > 0 ? 1 : 0);
    }
}
