//! The faults, done at their times.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use outboxd_throwaway::evidence::Micros;
use outboxd_throwaway::proxy::{self, Proxy};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::instances::Links;
use super::plan::{Fault, Kind};
use super::world::{Happened, World};
use super::writers;

mod instance;
mod operator;
mod postgres;
mod redis;

/// How long a probe may take to be committed and to arrive.
const PROBE_PATIENCE: Duration = Duration::from_secs(90);

/// Does all of the schedule; returns once everything is healed.
pub(super) async fn run(world: &Arc<World>, schedule: &[Fault]) -> Result<()> {
    let mut tasks = JoinSet::new();
    for fault in schedule {
        let (world, fault) = (Arc::clone(world), *fault);
        tasks.spawn(async move {
            tokio::time::sleep(fault.at.saturating_sub(world.elapsed())).await;
            happen(&world, fault).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    Ok(())
}

/// A fault under way.
#[derive(Debug)]
struct Ongoing<'a> {
    world: &'a World,
    fault: Fault,
    place: usize,
}

impl Ongoing<'_> {
    /// From now on nothing is broken.
    fn healed(&self) {
        let now = self.world.now();
        let mut log = self.world.log();
        log.happened[self.place].healed.get_or_insert(now);
    }

    /// It began only now: until now others held what it breaks.
    fn begins(&self) -> Micros {
        let now = self.world.now();
        self.world.log().happened[self.place].began = now;
        now
    }

    /// As long as the schedule says.
    async fn lasts(&self) {
        tokio::time::sleep(self.fault.lasts).await;
    }
}

/// One fault from its beginning until a notification was committed after it.
async fn happen(world: &Arc<World>, fault: Fault) {
    let place = {
        let began = world.now();
        let mut log = world.log();
        log.happened.push(Happened { fault, began, healed: None, probe: None, error: None });
        log.happened.len() - 1
    };
    // A task of its own: what heals may block.
    let probed = Arc::clone(world);
    let probing = AbortOnDropHandle::new(tokio::spawn(async move { probe(&probed, place).await }));
    let done = act(&Ongoing { world, fault, place }).await;
    if let Err(error) = done {
        world.log().happened[place].error = Some(format!("{error:#}"));
    }
    if let Err(error) = probing.await {
        world.log().happened[place].error.get_or_insert(format!("the probe: {error}"));
    }
}

async fn act(ongoing: &Ongoing<'_>) -> Result<()> {
    let (world, fault) = (ongoing.world, ongoing.fault);
    let Links { postgres: to_postgres, redis: to_redis } = &world.links[fault.target];
    let done = match fault.kind {
        Kind::InstanceKill => instance::kill(ongoing).await,
        Kind::InstanceStop => instance::stop(ongoing).await,
        Kind::InstanceDrain => instance::drain(ongoing).await,
        Kind::InstanceClock => instance::move_clock(ongoing).await,
        Kind::PostgresCut => link(ongoing, to_postgres, proxy::Fault::Reset).await,
        Kind::PostgresHalfOpen => link(ongoing, to_postgres, proxy::Fault::HalfOpen).await,
        Kind::PostgresSilent => link(ongoing, to_postgres, proxy::Fault::BlackHole).await,
        Kind::RedisCut => link(ongoing, to_redis, proxy::Fault::Reset).await,
        Kind::RedisHalfOpen => link(ongoing, to_redis, proxy::Fault::HalfOpen).await,
        Kind::RedisSwallow => link(ongoing, to_redis, proxy::Fault::SwallowReplies).await,
        Kind::PostgresTerminate => postgres::terminate(ongoing).await,
        Kind::PostgresImmediate => postgres::stop(ongoing, "QUIT").await,
        Kind::PostgresFast => postgres::stop(ongoing, "INT").await,
        Kind::PostgresFailover => postgres::fail_over(ongoing, nix::sys::signal::Signal::SIGKILL).await,
        Kind::PostgresFreeze => postgres::fail_over(ongoing, nix::sys::signal::Signal::SIGSTOP).await,
        Kind::RedisRestart | Kind::RedisAway => redis::restart(ongoing).await,
        Kind::RedisFlush => redis::flush(ongoing).await,
        Kind::RedisFailover => redis::fail_over(ongoing).await,
        Kind::OpenTransaction => writers::stay_open(world, fault.lasts).await,
        Kind::ProviderDown => provider_down(ongoing).await,
        Kind::Operator => operator::act(ongoing).await,
    };
    ongoing.healed();
    done
}

/// What lies between one instance and a server.
async fn link(ongoing: &Ongoing<'_>, proxies: &[Proxy], fault: proxy::Fault) -> Result<()> {
    // Nobody kills it meanwhile.
    let _instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    proxies.iter().for_each(|proxy| proxy.set(fault));
    ongoing.lasts().await;
    proxies.iter().for_each(Proxy::heal);
    Ok(())
}

async fn provider_down(ongoing: &Ongoing<'_>) -> Result<()> {
    let channel = ongoing.fault.dice as usize;
    ongoing.world.providers.set_down(channel, true);
    ongoing.lasts().await;
    ongoing.world.providers.set_down(channel, false);
    Ok(())
}

/// Commits a notification as soon as the fault is healed.
async fn probe(world: &World, place: usize) {
    while world.log().happened[place].healed.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let number = writers::probe(world, PROBE_PATIENCE).await;
    world.log().happened[place].probe = number;
}
