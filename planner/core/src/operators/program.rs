//! Makes one choice for each of several variables, at the least sum of costs. Single choices have costs, and pairs of
//! choices of two variables.
//!
//! Eliminating variables one by one is exact, and fast on graphs that are nearly series and parallel: chains, residual
//! sums, branches, ladders. Where a table would become too large, it is split in two, after which the sum is a lower
//! bound.

use std::collections::{BTreeMap, BTreeSet};

/// The most entries of a table for which choices are compared, before it is split.
const LARGEST_TABLE: usize = 1 << 22;

/// Variables with a finite number of choices each, and what these cost.
#[derive(Clone, Debug, Default)]
pub struct PairwiseProgram {
    /// Cost of each choice of each variable.
    costs: Vec<Vec<f64>>,
    /// Cost of each pair of choices of two variables, with the choices of the first as rows. The first variable has the
    /// smaller index.
    pairs: BTreeMap<[usize; 2], Vec<f64>>,
}

/// A choice for each variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Index of the choice of each variable.
    pub choices: Vec<usize>,
    /// Sum of the costs of these choices.
    pub cost: f64,
    /// Lower bound of the cost of all choices: `cost`, where the solution is proven the best.
    pub bound: f64,
}

/// A function of the choices of some variables.
struct Table {
    variables: Vec<usize>,
    /// By the choices of the variables, the last varying fastest.
    costs: Vec<f64>,
}

/// An eliminated variable, with its best choice for each combination of choices of the variables in its tables.
struct Eliminated {
    variable: usize,
    given: Vec<usize>,
    best: Vec<u16>,
}

impl PairwiseProgram {
    /// Adds a variable with the costs of its choices, and returns its index.
    pub fn add(&mut self, costs: Vec<f64>) -> usize {
        self.costs.push(costs);
        self.costs.len() - 1
    }

    /// Replaces the costs of a variable's choices.
    pub fn set_costs(&mut self, variable: usize, costs: Vec<f64>) {
        self.costs[variable] = costs;
    }

    /// Adds costs of pairs of choices of two variables: `of(a, b)` for choice `a` of the first and `b` of the other.
    pub fn add_pair(&mut self, first: usize, other: usize, of: impl Fn(usize, usize) -> f64) {
        let key = [first.min(other), first.max(other)];
        let [rows, columns] = key.map(|variable| self.costs[variable].len());
        let table = self.pairs.entry(key).or_insert_with(|| vec![0.0; rows * columns]);
        for (index, cost) in table.iter_mut().enumerate() {
            let (row, column) = (index / columns, index % columns);
            *cost += if first <= other { of(row, column) } else { of(column, row) };
        }
    }

    /// Number of choices of each variable.
    pub fn num_choices(&self) -> impl Iterator<Item = usize> {
        self.costs.iter().map(Vec::len)
    }

    /// Sum of the costs of some choices.
    pub fn cost(&self, choices: &[usize]) -> f64 {
        let single: f64 =
            self.costs.iter().zip(choices).map(|(costs, choice)| costs[*choice]).sum();
        let of_pair = |([first, other], table): (&[usize; 2], &Vec<f64>)| {
            table[choices[*first] * self.costs[*other].len() + choices[*other]]
        };
        single + self.pairs.iter().map(of_pair).sum::<f64>()
    }

    /// The choices with the least cost; of equals, those with smaller indices.
    pub fn least(&self) -> Solution {
        self.least_within(LARGEST_TABLE)
    }

    fn least_within(&self, largest: usize) -> Solution {
        let mut elimination = Elimination::new(self);
        let mut eliminated = Vec::with_capacity(self.costs.len());
        while let Some(variable) = elimination.next() {
            eliminated.push(elimination.eliminate(variable, largest));
        }
        let mut choices = vec![0; self.costs.len()];
        for Eliminated { variable, given, best } in eliminated.iter().rev() {
            let index = given
                .iter()
                .fold(0, |index, other| index * self.costs[*other].len() + choices[*other]);
            choices[*variable] = usize::from(best[index]);
        }
        let cost = self.cost(&choices);
        let bound = if elimination.was_split { elimination.constant.min(cost) } else { cost };
        Solution { choices, cost, bound }
    }
}

/// Tables over the variables that are left.
struct Elimination {
    sizes: Vec<usize>,
    tables: Vec<Option<Table>>,
    /// Tables of each variable.
    of_variable: Vec<BTreeSet<usize>>,
    /// Variables that are left, by the number of entries that their elimination compares.
    order: BTreeSet<(usize, usize)>,
    key: Vec<usize>,
    constant: f64,
    was_split: bool,
}

impl Elimination {
    fn new(program: &PairwiseProgram) -> Self {
        let num = program.costs.len();
        let mut elimination = Self {
            sizes: program.num_choices().collect(),
            tables: Vec::new(),
            of_variable: vec![BTreeSet::new(); num],
            order: BTreeSet::new(),
            key: vec![0; num],
            constant: 0.0,
            was_split: false,
        };
        for (variable, costs) in program.costs.iter().enumerate() {
            elimination.add(Table { variables: vec![variable], costs: costs.clone() });
        }
        for (pair, costs) in &program.pairs {
            elimination.add(Table { variables: pair.to_vec(), costs: costs.clone() });
        }
        for variable in 0..num {
            let tables = elimination.of_variable[variable].iter().copied();
            elimination.key[variable] = elimination.entries(variable, tables);
            elimination.order.insert((elimination.key[variable], variable));
        }
        elimination
    }

    fn next(&mut self) -> Option<usize> {
        self.order.pop_first().map(|(_, variable)| variable)
    }

    fn add(&mut self, table: Table) {
        if table.variables.is_empty() {
            self.constant += table.costs[0];
            return;
        }
        for variable in &table.variables {
            self.of_variable[*variable].insert(self.tables.len());
        }
        self.tables.push(Some(table));
    }

    /// Variables that share a table with this one, in order.
    fn neighbours(&self, tables: impl Iterator<Item = usize>, variable: usize) -> Vec<usize> {
        let all = tables.filter_map(|table| self.tables[table].as_ref());
        let all: BTreeSet<usize> = all.flat_map(|table| table.variables.iter().copied()).collect();
        all.into_iter().filter(|other| *other != variable).collect()
    }

    /// Entries that the elimination of a variable from these tables compares.
    fn entries(&self, variable: usize, tables: impl Iterator<Item = usize>) -> usize {
        let given = self.neighbours(tables, variable);
        let sizes = given.iter().map(|other| self.sizes[*other]);
        sizes.fold(self.sizes[variable], usize::saturating_mul)
    }

    /// Replaces the tables of a variable by one table with the costs of its best choice, or by several where that one
    /// would be too large.
    fn eliminate(&mut self, variable: usize, largest: usize) -> Eliminated {
        let own: Vec<usize> = std::mem::take(&mut self.of_variable[variable]).into_iter().collect();
        let mut touched = BTreeSet::new();
        let mut first = None;
        for group in self.groups(variable, &own, largest) {
            let given = self.neighbours(group.iter().copied(), variable);
            touched.extend(given.iter().copied());
            let (costs, best) = self.minimum(variable, &given, &group);
            for table in group {
                for other in self.tables[table].take().map_or_else(Vec::new, |it| it.variables) {
                    self.of_variable[other].remove(&table);
                }
            }
            self.add(Table { variables: given.clone(), costs });
            first.get_or_insert(Eliminated { variable, given, best });
        }
        for other in touched {
            self.order.remove(&(self.key[other], other));
            self.key[other] = self.entries(other, self.of_variable[other].iter().copied());
            self.order.insert((self.key[other], other));
        }
        first.expect("each variable has the table of its own costs")
    }

    /// The tables of a variable in groups that are small enough to combine; one group, if all tables together are small
    /// enough. The largest tables come first.
    fn groups(&mut self, variable: usize, own: &[usize], largest: usize) -> Vec<Vec<usize>> {
        if self.entries(variable, own.iter().copied()) <= largest {
            return vec![own.to_vec()];
        }
        self.was_split = true;
        let mut by_size = own.to_vec();
        let size = |table: &usize| self.tables[*table].as_ref().map_or(0, |it| it.costs.len());
        by_size.sort_by_key(|table| (std::cmp::Reverse(size(table)), *table));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for table in by_size {
            let fits = |group: &&mut Vec<usize>| {
                self.entries(variable, group.iter().copied().chain([table])) <= largest
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(table),
                None => groups.push(vec![table]),
            }
        }
        groups
    }

    /// The least cost over the choices of a variable, and that choice, for each combination of choices of `given`.
    fn minimum(&self, variable: usize, given: &[usize], group: &[usize]) -> (Vec<f64>, Vec<u16>) {
        let sizes: Vec<usize> = given.iter().map(|other| self.sizes[*other]).collect();
        let count: usize = sizes.iter().product();
        let tables = group.iter().filter_map(|table| self.tables[*table].as_ref());
        // For each table, the distance between neighbouring choices of each variable in `given`, and of the variable
        // itself.
        let strides: Vec<(&[f64], Vec<usize>, usize)> = tables
            .map(|table| {
                let stride = |of: usize| {
                    let after = table.variables.iter().position(|it| *it == of).map(|at| at + 1);
                    after.map_or(0, |after| {
                        table.variables[after..].iter().map(|it| self.sizes[*it]).product()
                    })
                };
                let of_given = given.iter().map(|other| stride(*other)).collect();
                (table.costs.as_slice(), of_given, stride(variable))
            })
            .collect();
        let mut costs = Vec::with_capacity(count);
        let mut best = Vec::with_capacity(count);
        let mut digits = vec![0; given.len()];
        let mut sums = vec![0.0; self.sizes[variable]];
        for _ in 0..count {
            sums.fill(0.0);
            for (table, of_given, own) in &strides {
                let start: usize =
                    of_given.iter().zip(&digits).map(|(stride, at)| stride * at).sum();
                for (choice, sum) in sums.iter_mut().enumerate() {
                    *sum += table[start + choice * own];
                }
            }
            let least = sums.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
            let (choice, cost) = least.expect("a variable has choices");
            costs.push(*cost);
            best.push(u16::try_from(choice).expect("few choices"));
            for (digit, size) in digits.iter_mut().zip(&sizes).rev() {
                *digit += 1;
                if *digit < *size {
                    break;
                }
                *digit = 0;
            }
        }
        (costs, best)
    }
}

#[cfg(test)]
mod tests {
    use good_lp::{
        Expression, ProblemVariables, Solution as _, SolverModel, Variable, constraint, microlp,
        variable,
    };
    use proptest::prelude::*;

    use super::*;

    /// The least cost by an integer program, with a 0/1 variable for each choice and for each pair of choices.
    fn by_integer_program(program: &PairwiseProgram) -> f64 {
        let mut variables = ProblemVariables::new();
        let mut objective = Expression::from(0.0);
        let mut constraints = Vec::new();
        let choices: Vec<Vec<Variable>> = program
            .costs
            .iter()
            .map(|costs| costs.iter().map(|_| variables.add(variable().binary())).collect())
            .collect();
        for (costs, choices) in program.costs.iter().zip(&choices) {
            costs.iter().zip(choices).for_each(|(cost, choice)| objective += *cost * *choice);
            constraints.push(constraint!(choices.iter().sum::<Expression>() == 1.0));
        }
        for ([first, other], table) in &program.pairs {
            let (rows, columns) = (&choices[*first], &choices[*other]);
            let both: Vec<Variable> =
                table.iter().map(|_| variables.add(variable().min(0.0).max(1.0))).collect();
            both.iter().zip(table).for_each(|(pair, cost)| objective += *cost * *pair);
            for (row, choice) in rows.iter().enumerate() {
                let of_row = both[row * columns.len()..][..columns.len()].iter();
                constraints.push(constraint!(of_row.sum::<Expression>() == *choice));
            }
            for (column, choice) in columns.iter().enumerate() {
                let of_column = both[column..].iter().step_by(columns.len());
                constraints.push(constraint!(of_column.sum::<Expression>() == *choice));
            }
        }
        let model = variables.minimise(&objective).using(microlp);
        let model = constraints.into_iter().fold(model, SolverModel::with);
        let solution = model.solve().expect("a choice exists");
        solution.eval(&objective)
    }

    fn exhaustively(program: &PairwiseProgram) -> f64 {
        let sizes: Vec<usize> = program.num_choices().collect();
        let count: usize = sizes.iter().product();
        let cost = |mut index: usize| {
            let mut choices = Vec::new();
            for size in &sizes {
                choices.push(index % size);
                index /= size;
            }
            program.cost(&choices)
        };
        (0..count).map(cost).fold(f64::INFINITY, f64::min)
    }

    fn programs() -> impl Strategy<Value = PairwiseProgram> {
        let costs = proptest::collection::vec(proptest::collection::vec(0_u8..50, 1..5), 1..7);
        let pairs = proptest::collection::vec((0_usize..7, 0_usize..7, any::<u64>()), 0..12);
        (costs, pairs).prop_map(|(costs, pairs)| {
            let mut program = PairwiseProgram::default();
            let num = costs.len();
            for costs in costs {
                program.add(costs.into_iter().map(f64::from).collect());
            }
            for (first, other, seed) in pairs {
                let (first, other) = (first % num, other % num);
                if first != other {
                    program.add_pair(first, other, |a, b| {
                        ((seed >> ((5 * a + 7 * b) % 57)) & 31) as f64
                    });
                }
            }
            program
        })
    }

    proptest! {
        #[test]
        fn elimination_finds_what_trying_all_choices_finds(program in programs()) {
            let found = program.least();
            prop_assert!((found.cost - exhaustively(&program)).abs() < 1e-9);
            prop_assert!((found.bound - found.cost).abs() < 1e-9);
            prop_assert!((program.cost(&found.choices) - found.cost).abs() < 1e-9);
        }

        #[test]
        fn tables_that_are_split_give_a_bound(program in programs()) {
            let least = exhaustively(&program);
            let found = program.least_within(8);
            prop_assert!(found.bound <= least + 1e-9);
            prop_assert!(least <= found.cost + 1e-9);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn elimination_and_integer_program_agree(program in programs()) {
            prop_assert!((program.least().cost - by_integer_program(&program)).abs() < 1e-6);
        }
    }
}
