//! Clusters of several kinds of nodes.

use serde::Deserialize;

use super::{Cluster, ClusterError, Gpu, NetworkLevel, NodeGroup, Wiring};
use crate::text::json;

/// A cluster file with groups.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    groups: Vec<GroupOfFile>,
    /// Levels above those of the groups.
    #[serde(default)]
    levels: Vec<NetworkLevel>,
}

/// A group in a file; its cluster is given by name or by description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupOfFile {
    nodes: u32,
    cluster: serde_json::Value,
}

/// Largest number of nodes of a group, far above the largest clusters.
const MOST_NODES: u32 = 1 << 20;

impl Cluster {
    /// Numbers and names of GPUs: `8 x H100-SXM5-80GB and 4 x A100-SXM4-80GB`; `num_gpus` of one name where all are
    /// equal.
    pub fn gpus_in_words(&self, num_gpus: u32) -> String {
        let counted = |num_gpus: u32, cluster: &Self| format!("{num_gpus} x {}", cluster.gpu.name);
        let groups = self.groups.iter().map(|group| counted(group.num_gpus(), &group.cluster));
        let groups: Vec<String> = groups.collect();
        if groups.is_empty() { counted(num_gpus, self) } else { groups.join(" and ") }
    }

    /// Reads a cluster's JSON in which a group may give its cluster by name; `named` looks names up.
    ///
    /// # Errors
    ///
    /// As for [`Self::from_json`], and for names that are not known.
    pub fn from_json_with(
        text: &str,
        named: impl Fn(&str) -> Option<Self>,
    ) -> Result<Self, ClusterError> {
        let has_groups =
            |value: &serde_json::Value| value.get("groups").is_some() && value.get("gpu").is_none();
        if !serde_json::from_str(text).is_ok_and(|value| has_groups(&value)) {
            return Self::from_json(text);
        }
        let file: GroupsFile = json::read(text).map_err(ClusterError::Json)?;
        let group = |(index, GroupOfFile { nodes, cluster }): (usize, GroupOfFile)| {
            let cluster = match cluster {
                serde_json::Value::String(name) => {
                    named(&name).ok_or(ClusterError::UnknownGroup { index, name })?
                }
                described => Self::from_json(&described.to_string())?,
            };
            Ok(NodeGroup { nodes, cluster })
        };
        let groups = file.groups.into_iter().enumerate().map(group).collect::<Result<_, _>>()?;
        let mut cluster = Self::of_groups(groups, file.levels)?;
        if cluster.has_unlike_gpus() {
            cluster.name = file.name.unwrap_or(cluster.name);
            cluster.description = file.description.unwrap_or(cluster.description);
        }
        Ok(cluster)
    }

    /// The cluster of these groups. `levels` join them; without `levels`, the slowest of the groups' own outermost
    /// levels does. Groups of equal nodes become one cluster, and a single group is its own cluster.
    ///
    /// # Errors
    ///
    /// Groups without nodes, within another group, or levels that no cluster can have.
    pub fn of_groups(
        groups: Vec<NodeGroup>,
        levels: Vec<NetworkLevel>,
    ) -> Result<Self, ClusterError> {
        let given = groups.clone();
        let mut all: Vec<NodeGroup> = Vec::with_capacity(groups.len());
        for (index, group) in groups.into_iter().enumerate() {
            check_group(index, &group)?;
            match all.iter_mut().find(|known| known.cluster == group.cluster) {
                Some(known) => known.nodes = known.nodes.saturating_add(group.nodes),
                None => all.push(group),
            }
        }
        // Equal groups in any order give the same cluster.
        all.sort_by_cached_key(|group| {
            let text = serde_json::to_string(&group.cluster).unwrap_or_default();
            (group.cluster.name.clone(), text)
        });
        let Some(first) = all.first() else {
            let works = "a list of groups, such as [{\"nodes\": 4, \"cluster\": \"a100\"}]";
            return Err(ClusterError::unusable("groups", "empty", works));
        };
        if all.len() == 1 {
            return joined_alike(&given, levels);
        }
        let name = listed(&all);
        let levels = if levels.is_empty() { vec![slowest_outermost(&all)] } else { levels };
        let description = "Nodes of several kinds.".to_owned();
        let cluster =
            Self { name, description, levels, groups: all.clone(), ..first.cluster.clone() };
        cluster.check()?;
        Ok(cluster)
    }

    /// True if the groups are joined by the slowest of their own outermost levels; a subset of the groups may not need
    /// that level.
    fn is_joined_by_default(&self) -> bool {
        self.levels == [slowest_outermost(&self.groups)]
    }

    /// True if the nodes are of several kinds.
    pub fn has_unlike_gpus(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The GPU of each kind of nodes.
    pub fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        let own = self.groups.is_empty().then_some(&self.gpu);
        own.into_iter().chain(self.groups.iter().map(|group| &group.cluster.gpu))
    }

    /// The cluster of some of the nodes, in this order, and its number of GPUs; for nodes of one kind, the cluster of
    /// their group.
    pub fn of_nodes(&self, nodes: &[NodeGroup]) -> (Self, u32) {
        let add = |sum: u32, group: &NodeGroup| sum.saturating_add(group.num_gpus());
        let num_gpus = nodes.iter().fold(0, add);
        let cluster = match nodes {
            [] => self.clone(),
            [only] => only.cluster.clone(),
            [first, ..] => Self {
                name: listed(nodes),
                description: self.description.clone(),
                levels: if self.is_joined_by_default() {
                    vec![slowest_outermost(nodes)]
                } else {
                    self.levels.clone()
                },
                groups: nodes.to_vec(),
                ..first.cluster.clone()
            },
        };
        (cluster, num_gpus)
    }

    /// Number of nodes of a job: the nodes of all groups, or the number that `num_gpus` GPUs need.
    pub fn num_nodes(&self, num_gpus: u32) -> u32 {
        if self.groups.is_empty() {
            return num_gpus.div_ceil(self.gpus_per_node.max(1));
        }
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.nodes))
    }

    /// Mean power of a GPU, in watts, if the power of each is known.
    pub fn power_watts(&self) -> Option<f64> {
        if self.groups.is_empty() {
            return self.gpu.power_watts;
        }
        let (mut watts, mut gpus) = (0.0, 0.0);
        for group in &self.groups {
            let of_group = f64::from(group.num_gpus());
            watts += of_group * group.cluster.gpu.power_watts?;
            gpus += of_group;
        }
        Some(watts / gpus)
    }

    /// The cluster of one group's nodes within this one: the group's own levels as far as the group reaches, then
    /// those that join the groups.
    pub fn of_group(&self, group: &NodeGroup) -> Self {
        let num_gpus = group.num_gpus();
        let mut levels: Vec<NetworkLevel> = Vec::new();
        for level in &group.cluster.levels {
            if levels.last().and_then(|level| level.ranks).is_some_and(|ranks| ranks >= num_gpus) {
                break;
            }
            let is_mesh = level.wiring == Some(Wiring::Mesh);
            let ranks = level.ranks.filter(|ranks| is_mesh || *ranks < num_gpus);
            levels.push(NetworkLevel { ranks: ranks.or(Some(num_gpus)), ..level.clone() });
        }
        let joins = self.levels.iter().filter(|it| it.ranks.is_none_or(|ranks| ranks > num_gpus));
        levels.extend(joins.cloned());
        Self { levels, ..group.cluster.clone() }
    }

    pub(super) fn check_groups(&self) -> Result<(), ClusterError> {
        let Some(first) = self.groups.first() else { return Ok(()) };
        let is_first = self.gpu == first.cluster.gpu
            && self.gpus_per_node == first.cluster.gpus_per_node
            && self.groups.len() > 1;
        if !is_first {
            return Err(ClusterError::GroupsDisagree);
        }
        for (index, group) in self.groups.iter().enumerate() {
            check_group(index, group)?;
            group.cluster.check()?;
        }
        Ok(())
    }
}

/// Refuses a group without nodes, or of groups.
fn check_group(index: usize, group: &NodeGroup) -> Result<(), ClusterError> {
    if group.nodes == 0 || group.nodes > MOST_NODES {
        let (field, works) = (format!("groups[{index}].nodes"), "from 1 to 1048576, such as 4");
        return Err(ClusterError::unusable(field, group.nodes.to_string(), works));
    }
    if group.cluster.has_unlike_gpus() {
        return Err(ClusterError::GroupWithinGroup { index });
    }
    Ok(())
}

/// Groups as `--cluster` takes them: `a100:4,h100:2`.
fn listed(groups: &[NodeGroup]) -> String {
    let counted = |group: &NodeGroup| format!("{}:{}", group.cluster.name, group.nodes);
    groups.iter().map(counted).collect::<Vec<_>>().join(",")
}

/// The cluster of groups with equal nodes: each group's own levels as far as it reaches, and `levels` beyond.
fn joined_alike(groups: &[NodeGroup], levels: Vec<NetworkLevel>) -> Result<Cluster, ClusterError> {
    let first = &groups[0];
    if levels.is_empty() {
        return Ok(first.cluster.clone());
    }
    if groups.len() == 1 || groups.iter().any(|it| it.nodes != first.nodes) {
        let works = "groups of as many nodes each, or one cluster whose own `levels` say what joins its nodes";
        let is = "of groups of the same nodes, which are one group or of several sizes";
        return Err(ClusterError::unusable("levels", is, works));
    }
    let joined = Cluster { levels, ..first.cluster.clone() }.of_group(first);
    joined.check()?;
    Ok(joined)
}

/// The slowest of the groups' outermost levels, with the longest latency among them.
fn slowest_outermost(groups: &[NodeGroup]) -> NetworkLevel {
    let outermost = || groups.iter().filter_map(|group| group.cluster.levels.last());
    let slowest = outermost().min_by(|a, b| a.bandwidth.get().total_cmp(&b.bandwidth.get()));
    let latency = outermost().map(|level| level.latency).max_by(|a, b| a.get().total_cmp(&b.get()));
    let level = slowest.expect("clusters in hand have levels").clone();
    NetworkLevel { latency: latency.unwrap_or(level.latency), ..level }
}
