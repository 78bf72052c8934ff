// Command lines that users of DeepSpeed and torchrun have been shown, as `gannet run --dry-run` understands them.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "launch/launched.h"

namespace {

using testing::HasSubstr;

struct Command {
  const char* words;  // FILE: a hostfile of worker-1 to worker-3 with 2, 4 and 4 slots
  int code;
  const char* said;  // the plan, or a part of the error
};

const Command kCommands[] = {
    {"--hostfile=FILE train.py --deepspeed --deepspeed_config c.json", 0,
     "worker-1  ranks 0 to 1, slots 0, 1\nworker-2  ranks 2 to 5, slots 0, 1, 2, 3\nworker-3  ranks 6 to 9, slots 0, 1, 2, 3\n"
     "each rank: train.py --deepspeed --deepspeed_config c.json\n"},
    {"--hostfile=FILE --exclude=worker-2:0@worker-3:0,1 p", 0,
     "worker-1  ranks 0 to 1, slots 0, 1\nworker-2  ranks 2 to 4, slots 1, 2, 3\nworker-3  ranks 5 to 6, slots 2, 3\neach rank: "
     "p\n"},
    {"--hostfile=FILE --include=worker-2:0,1 p", 0, "worker-2  ranks 0 to 1, slots 0, 1\neach rank: p\n"},
    {"--num_gpus 2 --num_nodes 2 --hostfile FILE --master_addr worker-1 --master_port=9901 p", 0,
     "worker-1  ranks 0 to 1, slots 0, 1\nworker-2  ranks 2 to 3, slots 0, 1\neach rank: p\n"},
    {"--no_ssh --hostfile FILE --node_rank=1 --master_addr worker-1 p", 0,
     "this machine, node 1 of 3: ranks 2 to 5, slots 0, 1, 2, 3; they meet at worker-1:29500\neach rank: p\n"},
    {"--nproc_per_node=8 --nnode=2 --node_rank=0 --master_addr=a --master_port=9901 p", 0,
     "this machine, node 0 of 2: ranks 0 to 7; they meet at a:9901\neach rank: p\n"},
    {"--nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr a --master-port 9901 p", 0,
     "this machine, node 1 of 2: ranks 8 to 15; they meet at a:9901\neach rank: p\n"},
    {"--num_nodes=1 p", 0, "this machine: rank 0\neach rank: p\n"},
    {"--num_gpus=1 p", 0, "this machine: rank 0\neach rank: p\n"},
    {"--num_gpus=2 p", 0, "this machine: ranks 0 to 1\neach rank: p\n"},
    {"--include localhost:1 p", 0, "this machine: rank 0, slot 1\neach rank: p\n"},
    // Where DeepSpeed would train on this machine alone.
    {"--num_nodes=2 p", 2, "--num_nodes 2, and nothing says which hosts these are: there is no /job/hostfile"},
    {"--hostfile=/nowhere/hosts p", 2, "the hostfile '/nowhere/hosts' is missing, empty, or cannot be read"},
    {"--hostfile=FILE --num_nodes 4 p", 2, "--num_nodes 4, and the hostfile has 3 hosts"},
    {"--no_ssh --node_rank=0 --master_addr a p", 2, "--node_rank 0 without --num_nodes"},
};

TEST_F(GannetRun, TakesTheCommandLinesThatUsersKnow) {
  std::ofstream(at("hosts")) << "worker-1 slots=2\nworker-2 slots=4\nworker-3 slots=4\n";
  for (const Command& command : kCommands) {
    std::vector<std::string> words = {"--dry-run"};
    std::istringstream given(command.words);
    for (std::string word; given >> word;) {
      const size_t place = word.find("FILE");
      words.push_back(place == std::string::npos ? word : word.replace(place, 4, at("hosts")));
    }
    Launched run(words);
    EXPECT_EQ(run.finish(), command.code) << command.words << '\n' << run.error();
    if (command.code == 0)
      EXPECT_EQ(run.output(), command.said) << command.words;
    else
      EXPECT_THAT(run.error(), HasSubstr(command.said)) << command.words;
  }
}

}  // namespace
