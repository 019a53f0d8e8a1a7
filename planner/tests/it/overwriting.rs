//! Output never takes the place of what is read, whatever it is called.

use std::fs;

use crate::bad_input::Workplace;
use crate::cli::planner;

#[test]
fn no_command_overwrites_its_input() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    fs::copy(place.path("model.json"), place.path("folder/config.json")).unwrap();
    let clusters = planner(&["list", "clusters", "--format", "json"]).json();
    place.write("cluster.json", clusters[0].to_string());
    place.write("order.json", "0F0,0B0");
    place.write("lengths.json", "8\n16\n");
    place.write("zero.json", "{\"train_micro_batch_size_per_gpu\": 1}");
    place.write("run.sh", "torchrun --nproc-per-node 8 train.py --deepspeed zero.json\n");
    let plan = place.path("plan.json");
    let search = ["search", &place.path("model.json"), "--gpus", "2", "--quiet", "-o", &plan];
    assert_eq!(planner(&search).code, Some(0));
    let timeline = place.path("timeline.json");
    assert_eq!(planner(&["simulate", &plan, "-o", &timeline]).code, Some(0));
    for (args, file) in [
        ("search {}/model.json --gpus 2", "model.json"),
        ("evaluate {}/model.json --gpus 2 --layout dp2", "model.json"),
        ("search {}/folder --gpus 2", "folder/config.json"),
        ("search {}/model.json --gpus 2 --cluster {}/cluster.json", "cluster.json"),
        ("search {}/model.json --gpus 2 --document-lengths {}/lengths.json", "lengths.json"),
        ("import {}/run.sh --model {}/model.json", "zero.json"),
        ("lint {}/run.sh --model {}/model.json", "zero.json"),
        ("calibrate --from {}/none.txt --cluster {}/cluster.json", "cluster.json"),
        ("schedule --from {}/order.json", "order.json"),
        ("simulate {}/plan.json", "plan.json"),
        ("chart {}/plan.json", "plan.json"),
        ("chart {}/timeline.json", "timeline.json"),
    ] {
        let text = fs::read(place.path(file)).unwrap();
        for output in [file.to_owned(), format!("folder/../{file}"), format!("./{file}")] {
            place.fails(&format!("{args} -o {{}}/{output}"), &["--output", file, "is read"]);
        }
        assert_eq!(fs::read(place.path(file)).unwrap(), text);
    }
    place.fails("chart {}/plan.json {}/timeline.json -o {}/timeline.json", &["is read"]);
}
