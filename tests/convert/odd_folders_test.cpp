// Folders that look like DeepSpeed's: each is imported as something that can be trained on, or refused with an Error. None may
// abort, hang, or fill the disk.
#include <sys/stat.h>

#include <limits>

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "convert/deepspeed_export.h"
#include "convert/deepspeed_folder.h"
#include "convert/export_pt.h"
#include "convert/hand_training.h"
#include "files/hand.h"
#include "state/saved_numbers.h"

namespace gannet::convert {
namespace {

using namespace files;

using namespace files::hand;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

enum class Wanted { kImported, kRefused };
struct Case {
  std::string name;
  Wanted wanted = Wanted::kRefused;
  std::function<void(Training&)> change = [](Training&) {};
  std::function<void(const std::string&)> harm = [](const std::string&) {};  // to the folder
};

Case model(const std::string& name, const std::string& key, const Text& value, Wanted wanted = Wanted::kRefused) {
  return {name, wanted, [=](Training& run) { run.model[key] = value; }};
}
Case optimizer(const std::string& name, const std::string& key, const Text& value, Wanted wanted = Wanted::kRefused) {
  return {name, wanted, [=](Training& run) { run.optimizer[key] = value; }};
}
Case adam(const std::string& name, const std::string& key, const Text& value) {
  return {name, Wanted::kRefused, [=](Training& run) { run.adam[key] = value; }};
}
Case group(const std::string& name, const std::string& key, const Text& value) {
  return {name, Wanted::kRefused, [=](Training& run) { run.group[key] = value; }};
}
Case scaler(const std::string& name, const std::string& key, const Text& value) {
  return optimizer(name, "loss_scaler", dict({{key == "cur_scale" ? "x" : "cur_scale", real(8)}, {key, value}}));
}
Case shapes(const std::string& name, const Text& value) { return model(name, "param_shapes", value); }
Case folder(const std::string& name, std::function<void(const std::string&)> harm, Wanted wanted = Wanted::kRefused) {
  return {name, wanted, [](Training&) {}, std::move(harm)};
}
// Another thing in the place of one of its entries.
Case instead(const std::string& name, const std::string& entry, const std::function<void(const std::string&)>& make,
             Wanted wanted = Wanted::kRefused) {
  return folder(
      name,
      [=](const std::string& dir) {
        fs::remove_all(dir + "/" + entry);
        make(dir + "/" + entry);
      },
      wanted);
}
void fifo(const std::string& path) { ::mkfifo(path.c_str(), 0600); }
void zeros(const std::string& path) { fs::create_symlink("/dev/zero", path); }
void circle(const std::string& path) { fs::create_symlink(path, path); }
void folder_there(const std::string& path) { fs::create_directory(path); }
std::function<void(const std::string&)> text(const std::string& content) {
  return [=](const std::string& path) { write_text(path, content); };
}

std::vector<Case> cases() {
  const int64_t vast = int64_t{1} << 40;
  const Text expanded = tensor({.sizes = {vast}, .strides = {0}});
  std::vector<Text> many;
  for (int i = 0; i < 40; ++i) many.push_back(str("w" + std::to_string(i)) + numbers({int64_t{1} << 58}));
  Text many_shapes = "](}(";
  for (const Text& one : many) many_shapes += one;
  many_shapes += "ue";
  Text deep = num(1);
  for (int i = 0; i < 100; ++i) deep = list({deep});
  std::vector<Case> all = {
      {"as it is", Wanted::kImported},
      model("samples are negative", "global_samples", num(-64)),
      model("steps are negative", "global_steps", num(-5)),
      model("skipped steps are negative", "skipped_steps", num(-1)),
      model("steps beyond 2^53", "global_steps", num((int64_t{1} << 53) + 1)),
      model("steps of 2^63 - 1", "global_steps", num(std::numeric_limits<int64_t>::max())),
      model("steps are a text", "global_steps", str("4")),
      model("steps are a fraction", "global_steps", real(1.5)),
      model("steps are NaN", "global_steps", real(kNan)),
      model("steps are infinite", "global_steps", real(kInfinity)),
      model("steps are 1e300", "global_steps", real(1e300)),
      {"more steps were skipped than taken", Wanted::kRefused,
       [](Training& run) { run.model["skipped_steps"] = num(9), run.model.erase("lr_scheduler"); }},
      adam("Adam's step is NaN", "step", real(kNan)),
      adam("Adam's step is infinite", "step", real(kInfinity)),
      adam("Adam's step is 1e300", "step", real(1e300)),
      adam("Adam's step is negative", "step", real(-3)),
      adam("Adam's step is a fraction", "step", real(2.5)),
      adam("Adam's step is a text", "step", str("4")),
      adam("a moment of integers", "exp_avg", tensor({.type = "IntStorage"})),
      adam("a moment of another size", "exp_avg", tensor({.sizes = {2}})),
      group("lr is NaN", "lr", real(kNan)),
      group("lr is infinite", "lr", real(kInfinity)),
      group("lr is negative", "lr", real(-1)),
      group("lr is a complex tensor", "lr", tensor({.type = "ComplexFloatStorage", .storage_numel = 2, .sizes = {}, .strides = {}})),
      group("a beta of 2", "betas", tuple({real(2), real(0.9)})),
      group("a beta of NaN", "betas", tuple({real(0.9), real(kNan)})),
      group("eps is NaN", "eps", real(kNan)),
      group("weight decay is -Infinity", "weight_decay", real(-kInfinity)),
      group("a parameter's number is a text", "params", list({str("0")})),
      scaler("the scale is 0", "cur_scale", real(0)),
      scaler("the scale is NaN", "cur_scale", real(kNan)),
      scaler("the scale is negative", "cur_scale", real(-1)),
      scaler("the scaler has no scale", "cur_scale", none()),
      scaler("the scaler's iteration is negative", "cur_iter", num(-2)),
      scaler("the last overflow is at -7", "last_overflow_iter", num(-7)),
      scaler("hysteresis is negative", "cur_hysteresis", num(-4)),
      optimizer("the scaler is a text", "loss_scaler", str("dynamic")),
      model("the schedule is at -7", "lr_scheduler", dict({{"last_batch_iteration", num(-7)}})),
      model("the schedule is at 2^63 - 1", "lr_scheduler", dict({{"last_batch_iteration", num(INT64_MAX)}})),
      model("an epoch of -1", "lr_scheduler", dict({{"last_epoch", num(-1)}})),
      model("no schedule", "lr_scheduler", none(), Wanted::kImported),
      model("accumulation of 0", "ds_config", dict({{"gradient_accumulation_steps", num(0)}})),
      model("accumulation of 2^40", "ds_config", dict({{"gradient_accumulation_steps", num(vast)}})),
      {"micro-steps beyond 2^53", Wanted::kRefused,
       [](Training& run) {
         run.model["global_steps"] = num(int64_t{1} << 50);
         run.model["ds_config"] = dict({{"gradient_accumulation_steps", num(1 << 20)}});
       }},
      model("a world of 0", "dp_world_size", num(0)),
      model("a world of -1", "dp_world_size", num(-1)),
      model("a world of 2^40", "dp_world_size", num(vast)),
      optimizer("no partitions", "partition_count", num(0)),
      optimizer("-1 partitions", "partition_count", num(-1)),
      optimizer("partitions of no group", "partition_count", list({})),
      shapes("a negative size", list({dict({{"w", numbers({-4})}})})),
      shapes("a size of 2^62", list({dict({{"w", numbers({int64_t{1} << 62})}})})),
      shapes("sizes whose sum is beyond 2^63", many_shapes),
      shapes("sizes whose product is beyond 2^63", list({dict({{"w", numbers({1 << 30, 1 << 30, 1 << 30})}})})),
      shapes("no groups", list({})),
      shapes("a group more than there are masters", list({dict({{"w", numbers({4})}}), dict({{"v", numbers({4})}})})),
      shapes("a text", str("w")),
      optimizer("masters of integers", "single_partition_of_fp32_groups", list({tensor({.type = "IntStorage"})})),
      optimizer("complex masters", "single_partition_of_fp32_groups",
                list({tensor({.type = "ComplexFloatStorage", .storage_numel = 2, .sizes = {2}})})),
      optimizer("a master of one element for 2^40", "single_partition_of_fp32_groups", list({expanded})),
      {"the optimizer has no groups", Wanted::kRefused, [](Training& run) { run.groups = list({}); }},
      {"the optimizer's groups are a text", Wanted::kRefused, [](Training& run) { run.groups = str("none"); }},
      {"a frozen parameter of one element for 2^40", Wanted::kRefused,
       [=](Training& run) { run.model["module"] = dict({{"w", tensor()}, {"mask", expanded}}); }},
      model("300 frozen parameters of one element for 2^28", "module", [] {
        Entries entries = {{"w", tensor()}};
        for (int i = 0; i < 300; ++i) entries.push_back({"m" + std::to_string(i), tensor({.sizes = {1 << 28}, .strides = {0}})});
        return dict(entries);
      }()),
      model("client_state has an expanded tensor", "mask", expanded),
      model("client_state has NaN", "loss", real(kNan), Wanted::kImported),
      model("client_state is deep", "deep", deep, Wanted::kImported),
      {"the module is a list", Wanted::kRefused, [](Training& run) { run.model["module"] = list({}); }},
      {"a parameter has the name of safetensors' own key", Wanted::kImported,
       [](Training& run) {
         run.model["module"] = dict({{"__metadata__", tensor()}});
         run.model["param_shapes"] = list({dict({{"__metadata__", numbers({4})}})});
       }},
      {"a parameter's name is not UTF-8", Wanted::kRefused,
       [](Training& run) {
         run.model["module"] = dict({{"w\xff", tensor()}});
         run.model["param_shapes"] = list({dict({{"w\xff", numbers({4})}})});
       }},
      instead("latest is a FIFO", "latest", fifo),
      instead("latest is a device", "latest", zeros),
      instead("latest is a folder", "latest", folder_there),
      instead("latest is a circle of links", "latest", circle),
      instead("latest is a sparse file of 10 GB", "latest", [](const std::string& path) {
        write_text(path, "step4");
        fs::resize_file(path, uint64_t{10} << 30);
      }),
      instead("latest leads out of the folder", "latest", text("..")),
      instead("latest is this folder", "latest", text(".")),
      instead("latest has control characters", "latest", text("step4\x1b[2J")),
      instead("latest has a NUL", "latest", text(std::string("step4\0x", 7))),
      instead("latest is long", "latest", text(std::string(4000, 'x'))),
      instead("latest is empty", "latest", text("")),
      instead("the tag is a circle of links", "step4", circle),
      instead("the tag is a file", "step4", text("x")),
      instead("the tag is a FIFO", "step4", fifo),
      instead("zero is a circle of links", "step4/zero", circle, Wanted::kImported),
      instead("zero is a file", "step4/zero", text("x"), Wanted::kImported),
      instead("offloaded_tensors is a folder", "step4/offloaded_tensors", folder_there),
      folder("latest_universal is a circle of links",
             [](const std::string& dir) {
               fs::remove(dir + "/latest");
               fs::remove_all(dir + "/step4");
               circle(dir + "/latest_universal");
             }),
      instead("the model's file is a FIFO", "step4/mp_rank_00_model_states.pt", fifo),
      instead("the model's file is a device", "step4/mp_rank_00_model_states.pt", zeros),
      instead("the model's file is a folder", "step4/mp_rank_00_model_states.pt", folder_there),
      instead("the model's file is a circle of links", "step4/mp_rank_00_model_states.pt", circle),
      instead("the optimizer's file is a FIFO", "step4/zero_pp_rank_0_mp_rank_00_optim_states.pt", fifo),
      instead("the optimizer's file is a device", "step4/zero_pp_rank_0_mp_rank_00_optim_states.pt", zeros),
      instead("a rank of 7 digits", "step4/zero_pp_rank_1000000_mp_rank_00_optim_states.pt", text("x")),
      folder("the folder is a circle of links",
             [](const std::string& dir) {
               fs::remove_all(dir);
               circle(dir);
             }),
      folder("the folder is a FIFO",
             [](const std::string& dir) {
               fs::remove_all(dir);
               fifo(dir);
             }),
  };
  return all;
}

class OddFolders : public FolderTest {};

TEST_F(OddFolders, are_imported_as_what_can_be_trained_on_or_refused) {
  ASSERT_GE(cases().size(), 40u);
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    fs::remove_all(root_);
    const std::string dir = file("run"), out = file("out");
    Training run;
    one.change(run);
    run.write(dir);
    one.harm(dir);
    const Outcome outcome = in_child([&] {
      is_deepspeed_folder(dir);
      import_deepspeed(dir, out, {});
    });
    EXPECT_EQ(to_string(outcome), std::string(to_string(one.wanted == Wanted::kImported ? Outcome::kDone : Outcome::kRefused)));
    EXPECT_EQ(fs::exists(out), outcome == Outcome::kDone) << "something was left behind";
    if (outcome == Outcome::kDone) {
      const checkpoint::Opened opened = checkpoint::open(out, {});
      EXPECT_TRUE(opened.verify().empty());
      EXPECT_NO_THROW(check_numbers(opened, /*is_fp16=*/true, /*with_states=*/true));
    }
    for (const std::string name : {"x.bin", "x.safetensors"}) {
      const Outcome exported = in_child([&] {
        std::vector<std::string> notes;
        is_deepspeed_folder(dir);
        checkpoint::export_file(deepspeed_weights(dir, "", false, notes), file(name),
                                {.format = name == "x.bin" ? pt_format() : checkpoint::safetensors_format()});
      });
      EXPECT_TRUE(exported == Outcome::kDone || exported == Outcome::kRefused) << to_string(exported);
    }
  }
}

TEST_F(OddFolders, numbers_are_named_with_their_file_and_place) {
  Training run;
  run.model["global_samples"] = num(-64);
  run.write(file("run"));
  EXPECT_THAT(
      error_of(ErrorCode::kCorrupt, [&] { import_deepspeed(file("run"), file("out"), {}); }),
      testing::AllOf(testing::HasSubstr("mp_rank_00_model_states.pt: global_samples is -64"), testing::HasSubstr("2^53")));
}

}  // namespace
}  // namespace gannet::convert
