//! A real Redis Cluster on loopback: three primaries, and replicas where a test wants them.

use super::super::process::free_port;
use super::super::wait;
use super::RedisServer;

/// Long enough for a busy machine, short enough for a failover within a test.
const NODE_TIMEOUT_MS: &str = "1500";

/// The slots of the three primaries.
const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// Three primaries; further nodes are replicas.
#[derive(Debug)]
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three primaries that know each other and serve all slots.
    pub async fn start() -> RedisCluster {
        let nodes: Vec<RedisServer> = (0..3).map(|_| start_node()).collect();
        for (node, (first, last)) in nodes.iter().zip(SLOTS) {
            node.run::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")).await;
            introduce(node, &nodes[0]).await;
        }
        let cluster = RedisCluster { nodes };
        cluster.until_whole().await;
        cluster
    }

    /// Adds a replica of the node at `index` and waits until it has its data.
    pub async fn add_replica_of(&mut self, index: usize) {
        let replica = start_node();
        introduce(&replica, &self.nodes[0]).await;
        let primary: String = self.nodes[index].run("CLUSTER MYID").await;
        wait::until("the replica knows its primary", async || {
            let nodes: String = replica.run("CLUSTER NODES").await;
            nodes.contains(&primary) && !nodes.contains("handshake")
        })
        .await;
        replica.run::<()>(&format!("CLUSTER REPLICATE {primary}")).await;
        wait::until("the replica is in step", async || {
            replica.run::<String>("INFO replication").await.contains("master_link_status:up")
        })
        .await;
        self.nodes.push(replica);
        self.until_whole().await;
    }

    /// Which node serves the slot of `key`.
    pub async fn owner_of(&self, key: &str) -> usize {
        let slot: u16 = self.nodes[0].run(&format!("CLUSTER KEYSLOT {key}")).await;
        SLOTS.iter().position(|(first, last)| (first..=last).contains(&&slot)).expect("every slot is served")
    }

    /// Moves the slot of `key` with all it holds from one node to another.
    pub async fn move_slot(&self, key: &str, from: usize, to: usize) {
        let slot: u16 = self.nodes[0].run(&format!("CLUSTER KEYSLOT {key}")).await;
        let from_id: String = self.nodes[from].run("CLUSTER MYID").await;
        let to_id: String = self.nodes[to].run("CLUSTER MYID").await;
        self.nodes[to].run::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await;
        self.nodes[from].run::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await;
        let keys: Vec<String> = self.nodes[from].run(&format!("CLUSTER GETKEYSINSLOT {slot} 1000")).await;
        let to_port = self.nodes[to].port();
        self.nodes[from].run::<()>(&format!("MIGRATE 127.0.0.1 {to_port}  0 5000 KEYS {}", keys.join(" "))).await;
        for node in [to, from] {
            self.nodes[node].run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_id}")).await;
        }
    }

    async fn until_whole(&self) {
        let count = self.nodes.len();
        wait::until("the cluster is whole", async || {
            for node in &self.nodes {
                let info: String = node.run("CLUSTER INFO").await;
                if !info.contains("cluster_state:ok") || !info.contains(&format!("cluster_known_nodes:{count}\r")) {
                    return false;
                }
            }
            true
        })
        .await;
    }
}

fn start_node() -> RedisServer {
    let args = format!(
        "--cluster-enabled yes --cluster-port {} --cluster-node-timeout {NODE_TIMEOUT_MS} \
         --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0 --appendonly yes",
        free_port()
    );
    RedisServer::start(&args.split(' ').collect::<Vec<_>>())
}

async fn introduce(node: &RedisServer, other: &RedisServer) {
    let bus: Vec<String> = other.run("CONFIG GET cluster-port").await;
    node.run::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.port(), bus[1])).await;
}
