// Hostfiles, filters, variables and devices: the tables of DeepSpeed's launcher, and what Gannet refuses.
#include "launch/hosts.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "launch/devices.h"
#include "launch/env_file.h"
#include "launch/filters.h"
#include "launch/placement.h"

namespace {

using namespace gannet::launch;
using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of_hosts(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += (text.empty() ? "" : " ") + host.name + ":" + text_of(host.slots, ",");
  return text;
}

std::string result_of(const std::function<std::string()>& call) {
  try {
    return call();
  } catch (const gannet::Error& error) {
    return std::string("refused: ") + error.what();
  }
}

std::string parsed(const std::string& text) {
  return result_of([&] { return text_of_hosts(parse_hostfile(text, "hosts")); });
}

TEST(Hostfile, TakesTheLinesOfDeepSpeed) {
  EXPECT_EQ(parsed("worker-1 slots=2\n"), "worker-1:0,1");
  EXPECT_EQ(parsed("   worker-1\tslots=2   \n\n# a comment slots=9\n  #another\nworker-0 slots=1"), "worker-1:0,1 worker-0:0");
  EXPECT_EQ(parsed("w1 slots=4 # note\n"), "w1:0,1,2,3");
  EXPECT_EQ(parsed("w1 slots=1 max_slots=8\r\nw2 slots=1\r\n"), "w1:0 w2:0");
  EXPECT_EQ(parsed("w1 slots=0\nw2 slots=1\n"), "w1: w2:0");
  EXPECT_EQ(parsed("10.0.0.7 slots=1\n"), "10.0.0.7:0");
  EXPECT_EQ(parsed("\xEF\xBB\xBFw1 slots=1\n"), "w1:0");
}

TEST(Hostfile, RefusesOtherLinesWithTheirNumber) {
  for (const char* line : {"w1", "w1 slots", "w1 slots = 4", "this is bad slots=1", "missingslots", "w1 slots=2abc",
                           "w1 slots=-1", "w1:4", "w1 slots="})
    EXPECT_THAT(parsed(std::string("ok slots=1\n") + line + "\n"),
                HasSubstr(std::string("hosts, line 2: '") + line + "' is not a line of a hostfile"))
        << line;
  EXPECT_THAT(parsed("w slots=1\n\nw slots=2\n"), HasSubstr("hosts, line 3: w is listed twice"));
  EXPECT_THAT(parsed("w slots=99999999999999\n"), HasSubstr("at most 4096"));
  EXPECT_THAT(parsed("-oProxyCommand=x slots=1\n"), HasSubstr("is not a valid host name"));
  EXPECT_THAT(parsed("# nothing\n"), HasSubstr("has no host"));
  EXPECT_THAT(result_of([] { return text_of_hosts(read_hostfile("/nowhere/hosts")); }),
              HasSubstr("the hostfile '/nowhere/hosts' is missing"));
}

std::string filter(const std::string& hosts, const std::string& include, const std::string& exclude) {
  return result_of([&] { return text_of_hosts(filtered(parse_hostfile(hosts, "hosts"), include, exclude)); });
}

TEST(Filters, ChooseAsDocumented) {
  const std::string one = "worker-0 slots=4\n", two = one + "worker-1 slots=4\n";
  EXPECT_EQ(filter(one, "", ""), "worker-0:0,1,2,3");
  EXPECT_EQ(filter(one, "", "worker-0:1"), "worker-0:0,2,3");
  EXPECT_EQ(filter(one, "", "worker-0:1,2"), "worker-0:0,3");
  EXPECT_EQ(filter(one, "worker-0:1", ""), "worker-0:1");
  EXPECT_EQ(filter(one, "worker-0:1,1", ""), "worker-0:1");
  EXPECT_EQ(filter(one, "worker-0:1@worker-0:0,1", ""), "worker-0:0,1");
  EXPECT_EQ(filter(one, "worker-0", ""), "worker-0:0,1,2,3");
  EXPECT_EQ(filter(one, "worker-0:1@worker-0", ""), "worker-0:0,1,2,3");
  EXPECT_EQ(filter(one, "", "worker-0"), "");
  EXPECT_EQ(filter(one, "", "worker-0:0,1,2,3"), "");
  EXPECT_EQ(filter(two, "worker-1:0,3", ""), "worker-1:0,3");
  EXPECT_EQ(filter(two, "worker-1@worker-0:2", ""), "worker-0:2 worker-1:0,1,2,3");
  EXPECT_EQ(filter(two, "", "worker-1"), "worker-0:0,1,2,3");
  EXPECT_EQ(filter(two, "", "worker-0:0,1@worker-1:3"), "worker-0:2,3 worker-1:0,1,2");
}

TEST(Filters, KnowNamesWithSeparators) {
  const std::string hosts = "me@a slots=2\nfe80::1 slots=2\nme slots=1\n";
  EXPECT_EQ(filter(hosts, "me@a", ""), "me@a:0,1");
  EXPECT_EQ(filter(hosts, "fe80::1:1@me@a:0@me", ""), "me@a:0 fe80::1:1 me:0");
  EXPECT_EQ(filter(hosts, "", "fe80::1@me"), "me@a:0,1");
}

TEST(Filters, RefuseWhatIsNotThere) {
  const std::string two = "worker-0 slots=4\nworker-1 slots=4\n";
  for (const bool includes : {true, false}) {
    const auto refusal = [&](const std::string& text) { return includes ? filter(two, text, "") : filter(two, "", text); };
    EXPECT_THAT(refusal("jeff"), HasSubstr("there is no host 'jeff'"));
    EXPECT_THAT(refusal("worker-2"), HasSubstr("did you mean"));
    EXPECT_THAT(refusal("worker-1:4"), HasSubstr("worker-1 has no slot 4"));
    EXPECT_THAT(refusal("worker-1:4"), HasSubstr("its slots are 0, 1, 2, 3"));
    EXPECT_THAT(refusal("worker-1@worker-0:1@5"), HasSubstr("there is no host '5'"));
    for (const char* text :
         {"worker-0:1:2", "worker-0:x", "worker-0:", "worker-0:1,", "worker-0:-1", "@worker-0", "worker-0@", "worker-0:99999"})
      EXPECT_THAT(refusal(text), HasSubstr("is not NAME or NAME:SLOT,SLOT")) << text;
  }
  EXPECT_THAT(filter(two, "worker-0", "worker-1"), HasSubstr("--include and --exclude together"));
}

TEST(Hosts, CountsAndFilters) {
  const auto hosts = parse_hostfile("a slots=2\nb slots=4\nc slots=0\n", "hosts");
  const auto chosen = [&](const HostOptions& options) {
    return result_of([&] { return text_of_hosts(chosen_hosts(hosts, options)); });
  };
  EXPECT_EQ(chosen({}), "a:0,1 b:0,1,2,3");
  EXPECT_EQ(chosen({.nodes = 1}), "a:0,1");
  EXPECT_EQ(chosen({.procs = 2}), "a:0,1 b:0,1");
  EXPECT_EQ(chosen({.nodes = 1, .procs = 1}), "a:0");
  EXPECT_EQ(chosen({.include = "b:1,3"}), "b:1,3");
  EXPECT_THAT(chosen({.nodes = 3}), HasSubstr("--num_nodes 3, and the hostfile has 2 hosts"));
  EXPECT_THAT(chosen({.procs = 3}), HasSubstr("3 ranks on each host, and a has 2 slots"));
  EXPECT_THAT(chosen({.include = "a", .nodes = 1}), HasSubstr("--include beside --num_nodes"));
  EXPECT_THAT(chosen({.exclude = "a", .procs = 1}), HasSubstr("--exclude beside --num_gpus"));
  EXPECT_THAT(chosen({.exclude = "a@b"}), HasSubstr("--exclude leaves no slot"));
}

TEST(Hosts, SlotsOfThisMachine) {
  const auto slots = [](uint32_t devices, const HostOptions& options) {
    return result_of([&] { return text_of(chosen_slots(devices, options)); });
  };
  EXPECT_EQ(slots(4, {.include = "localhost:1"}), "1");
  EXPECT_EQ(slots(4, {.exclude = "localhost:1"}), "0, 2, 3");
  EXPECT_EQ(slots(0, {.include = "localhost:4,7"}), "4, 7");  // no device can be counted
  EXPECT_THAT(slots(4, {.include = "localhost:4"}), HasSubstr("localhost has no slot 4"));
  EXPECT_THAT(slots(4, {.include = "worker-1:0"}), HasSubstr("the hosts are localhost"));
  EXPECT_THAT(slots(0, {.exclude = "localhost:4"}), HasSubstr("no device that could be counted"));
  EXPECT_THAT(slots(0, {.include = "localhost"}), HasSubstr("no device that could be counted"));
}

TEST(Hosts, OtherLaunchersAreALineToType) {
  const auto hosts = parse_hostfile("a slots=2\nb slots=2\n", "hosts"),
             unlike = parse_hostfile("a slots=2\nb slots=1\n", "hosts");
  const auto line = [](const std::string& name, const std::vector<Host>& of) {
    return result_of([&]() -> std::string { refuse_launcher(name, of, {"./train", "--note", "it's"}); });
  };
  EXPECT_THAT(line("slurm", hosts),
              HasSubstr("srun --nodes 2 --nodelist a,b --ntasks-per-node 1 gannet run --num_procs 2 ./train --note 'it'\\''s'"));
  EXPECT_THAT(line("slurm", unlike), HasSubstr("srun --nodes 2 --nodelist a,b --ntasks 3 ./train"));
  EXPECT_THAT(line("openmpi", unlike), HasSubstr("mpirun -np 3 --host a:2,b:1 ./train"));
  EXPECT_THAT(line("mpich", hosts), HasSubstr("mpirun -n 4 -hosts a:2,b:2 ./train"));
  EXPECT_THAT(line("impi", hosts), HasSubstr("mpirun -n 4 -ppn 2 -hosts a,b ./train"));
  EXPECT_THAT(line("mvapich", hosts), HasSubstr("mpirun -n 4 -ppn 2 -hosts a,b ./train"));
  EXPECT_THAT(line("kubernetes", hosts), HasSubstr("gannet run --num_procs 2 --num_nodes 2 --master_addr HOST ./train"));
  EXPECT_THAT(line("slrum", hosts), HasSubstr("did you mean 'slurm'"));
}

TEST(EnvFile, TakesValuesLiterally) {
  std::vector<std::string> notes;
  const Exports exports = parse_env_file("A=1\n\n  # note\n B = x y \nC=\"q\"\nD=a=b\nE=\n", "env", notes);
  using Pair = std::pair<std::string, std::string>;
  EXPECT_THAT(exports, ElementsAre(Pair("A", "1"), Pair("B", "x y"), Pair("C", "\"q\""), Pair("D", "a=b"), Pair("E", "")));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("env, line 5: the quotes are part of C's value")));
  for (const char* line : {"export A=1", "A", "=1", "1A=2", "A-B=1"})
    EXPECT_THAT(result_of([&] { return parse_env_file(std::string("X=1\n") + line, "env", notes)[0].first; }),
                HasSubstr("env, line 2: '"))
        << line;
}

TEST(EnvFile, LaterFilesAndOptionsWin) {
  const auto folder = std::filesystem::temp_directory_path() / ("gannet-env-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "home");
  std::filesystem::create_directories(folder / "here");
  std::ofstream(folder / "home/.deepspeed_env") << "A=home\nB=home\n";
  std::ofstream(folder / "here/.deepspeed_env") << "B=here\n";
  std::ofstream(folder / "here/own") << "C=own\n";
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "here");
  std::vector<std::string> notes;
  const auto home = (folder / "home").string();
  EXPECT_THAT(with_exports({"A=0", "Z=9"}, read_env_files(home, "", notes)), ElementsAre("Z=9", "A=home", "B=here"));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("home/.deepspeed_env: 2 variables"), HasSubstr(".deepspeed_env: 1 variable on")));
  EXPECT_THAT(with_exports({}, read_env_files(home, "own", notes)), ElementsAre("C=own"));
  EXPECT_THAT(with_exports({}, read_env_files(home, (folder / "here/own").string(), notes)), ElementsAre("C=own"));
  EXPECT_THAT(result_of([&] { return read_env_files(home, "none", notes)[0].first; }),
              HasSubstr("DS_ENV_FILE names 'none', which is missing"));
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

TEST(EnvFile, OptionsNameOrSetAVariable) {
  const auto text = [](const std::string& option) {
    return result_of([&] {
      const auto [name, value] = export_of(option, {"HERE=x=y"});
      return name + "|" + value;
    });
  };
  EXPECT_EQ(text("A=1=2"), "A|1=2");
  EXPECT_EQ(text("A="), "A|");
  EXPECT_EQ(text("HERE"), "HERE|x=y");
  EXPECT_THAT(text("NOT"), HasSubstr("it is not set here"));
  EXPECT_THAT(text("A B=1"), HasSubstr("is not a valid variable name"));
  EXPECT_THAT(result_of([] { return with_exports({}, {{"WORLD_SIZE", "3"}})[0]; }),
              HasSubstr("WORLD_SIZE cannot be chosen for all ranks"));
}

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / ("gannet-devices-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(root_ + "/dev");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void add(const std::string& file, const std::string& text = "") {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  std::string visible(const std::vector<uint32_t>& slots, const std::vector<std::string>& environment = {}) {
    return result_of([&] { return visible_devices(slots, environment, root_); });
  }
  std::string root_;
};

TEST_F(Devices, AreCountedByTheirFiles) {
  EXPECT_EQ(count_devices({}, root_), 0u);
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES=0,1"}, root_), 0u);
  for (const char* file : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10", "/dev/nvidiactl", "/dev/nvidia-uvm"}) add(file);
  EXPECT_EQ(count_devices({}, root_), 3u);
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES=2,0"}, root_), 2u);
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES=2,-1,0"}, root_), 1u);
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES=2,,0"}, root_), 1u);  // CUDA stops at the first entry that is not a device
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES= ,0"}, root_), 0u);
  EXPECT_EQ(count_devices({"CUDA_VISIBLE_DEVICES="}, root_), 0u);
}

TEST_F(Devices, OfAmdAreNodesWithAnId) {
  add("/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
  add("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51234\n");
  EXPECT_EQ(count_devices({}, root_), 1u);
  EXPECT_EQ(count_devices({"HIP_VISIBLE_DEVICES="}, root_), 0u);
}

TEST_F(Devices, SlotsCountWhatIsVisible) {
  EXPECT_EQ(visible({4, 7}), "CUDA_VISIBLE_DEVICES=4,7");
  EXPECT_EQ(visible({0, 2}, {"CUDA_VISIBLE_DEVICES=4,5, GPU-8932f937"}), "CUDA_VISIBLE_DEVICES=4,GPU-8932f937");
  EXPECT_EQ(visible({1}, {"ROCR_VISIBLE_DEVICES=3,6"}), "ROCR_VISIBLE_DEVICES=6");
  EXPECT_EQ(visible({0, 1}, {"CUDA_VISIBLE_DEVICES="}), "CUDA_VISIBLE_DEVICES=");
  EXPECT_THAT(visible({1}, {"CUDA_VISIBLE_DEVICES=4"}), HasSubstr("slot 1, and CUDA_VISIBLE_DEVICES shows 1 device"));
  add("/dev/nvidia0");
  add("/dev/nvidia1");
  EXPECT_THAT(visible({1, 2}), HasSubstr("slot 2, and this machine has 2 devices"));
}

class Placements : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gannet-placements-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "hosts") << "a slots=1\nb slots=2\n";
    options_.default_hostfile = (folder_ / "none").string();
    options_.command = {"./train"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string placed(const gannet::control::Variables& variables = {}, uint32_t devices = 0) {
    return result_of([&] {
      const std::string text = text_of(place(options_, variables, devices), {});
      return text.substr(0, text.rfind("each rank"));
    });
  }
  std::filesystem::path folder_;
  PlacementOptions options_;
};

const gannet::control::Variables kSlurmNode = {{"SLURM_JOB_ID", "7"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_PROCID", "1"},
                                               {"SLURM_STEP_NUM_TASKS", "2"},
                                               {"SLURM_STEP_NUM_NODES", "2"},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_STEP_NODELIST", "n[3-4]"}};

TEST_F(Placements, OnThisMachine) {
  EXPECT_EQ(placed(), "this machine: rank 0\n");
  EXPECT_EQ(placed({}, 4), "this machine: ranks 0 to 3\n");
  options_.hosts.procs = 2;
  EXPECT_EQ(placed({}, 4), "this machine: ranks 0 to 1\n");
  options_.hosts = {.include = "localhost:1"};
  EXPECT_EQ(placed({}, 4), "this machine: rank 0, slot 1\n");
}

TEST_F(Placements, OnTheHostsOfAFile) {
  options_.hosts.hostfile = (folder_ / "hosts").string();
  EXPECT_EQ(placed(), "a  rank 0, slot 0\nb  ranks 1 to 2, slots 0, 1\n");
  options_.launcher = "pdsh";
  EXPECT_EQ(placed(), "a  rank 0, slot 0\nb  ranks 1 to 2, slots 0, 1\n");
  options_.node.rank = 1;
  EXPECT_THAT(placed(), HasSubstr("--node_rank with a hostfile"));
  options_.no_ssh = true;
  EXPECT_THAT(placed(), HasSubstr("this machine, node 1 of 2: ranks 1 to 2, slots 0, 1; they meet at a:29500"));
  options_.node.rank = 0;
  std::ofstream(folder_ / "hosts") << "me@a slots=1\nb slots=2\n";  // for ssh; the ranks meet at a
  EXPECT_THAT(placed(), HasSubstr("they meet at a:29500"));
  options_.node.master_addr = "x";
  options_.node.master_port = 7;
  EXPECT_THAT(placed(), HasSubstr("this machine, node 0 of 2: rank 0, slot 0; they meet at x:7"));
  options_.node.rank = 2;
  EXPECT_THAT(placed(), HasSubstr("--node_rank 2, and 2 hosts take part"));
  options_.node.rank.reset();
  EXPECT_THAT(placed(), HasSubstr("no --node_rank"));
}

TEST_F(Placements, TheFileOfDeepSpeed) {
  options_.hosts.nodes = 2;
  EXPECT_THAT(placed(),
              HasSubstr("--num_nodes 2, and nothing says which hosts these are: there is no " + options_.default_hostfile));
  options_.default_hostfile = (folder_ / "hosts").string();
  EXPECT_EQ(placed(), "a  rank 0, slot 0\nb  ranks 1 to 2, slots 0, 1\n");
  options_.hosts.nodes = 1;
  EXPECT_EQ(placed(), "a  rank 0, slot 0\n");
  options_.hosts.nodes.reset();
  EXPECT_THAT(placed(kSlurmNode), HasSubstr("this machine, node 1 of 2: rank 1; they meet at n3:"));
}

TEST_F(Placements, SayWhichHostsTakeNoPart) {
  options_.hosts.hostfile = (folder_ / "some").string();
  std::ofstream(options_.hosts.hostfile) << "a slots=1\nb slots=0\n";
  EXPECT_EQ(placed(), "a  rank 0, slot 0\n");
  EXPECT_THAT(place(options_, {}, 0).notes, ElementsAre("b has slots=0 in " + options_.hosts.hostfile + ", and takes no part"));
}

TEST_F(Placements, RefuseWhatContradictsItself) {
  options_.hosts.hostfile = (folder_ / "hosts").string();
  EXPECT_THAT(placed(kSlurmNode), HasSubstr("each of these launchers would start all hosts"));
  options_.launcher = "slurm";
  EXPECT_THAT(placed(), HasSubstr("srun --nodes 2 --nodelist a,b --ntasks 3 ./train"));
  options_ = {};
  options_.no_ssh = true;
  EXPECT_THAT(placed(), HasSubstr("--no_ssh without --num_nodes or --hostfile"));
}

}  // namespace
