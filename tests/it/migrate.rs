//! The schema comes up on any number of instances at once, and says clearly why it cannot.

use outboxd::migrate::{self, Install};

use crate::support::postgres;

#[tokio::test]
async fn eight_migrations_at_once_all_succeed_on_an_empty_database() {
    let database = postgres::empty_database().await;
    let migrators = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(async move { migrate::run(&mut database.connect().await, Install::Always).await })
    });
    let mut applied = 0;
    for migrator in migrators.collect::<Vec<_>>() {
        applied += usize::from(!migrator.await.unwrap().unwrap().applied.is_empty());
    }
    assert_eq!(applied, 1, "one of them did the work");
    assert_eq!(migrate::schema_version(&database.connect().await).await.unwrap(), migrate::newest());
}
