// Which node of several a launcher is: from options, and from what other launchers set.
#include "launch/node.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace {

using gannet::control::Variables;
using gannet::launch::Node;
using gannet::launch::node_of;
using gannet::launch::NodeOptions;
using testing::HasSubstr;

std::string text_of(const Node& node) {
  return std::to_string(node.index) + " of " + std::to_string(node.count) + " at " + node.master_addr + ":" +
         std::to_string(node.master_port) + (node.procs ? " with " + std::to_string(*node.procs) : "");
}

std::string refusal(const NodeOptions& options, const Variables& variables = {}) {
  try {
    return "accepted: " + text_of(node_of(options, variables));
  } catch (const gannet::Error& error) {
    return error.what();
  }
}

const Variables kSlurm = {{"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_STEP_NODELIST", "gpu[03-07]"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(Node, OneMachineUnlessSomethingSaysMore) {
  EXPECT_EQ(text_of(node_of({}, {})), "0 of 1 at 127.0.0.1:0");
  EXPECT_EQ(text_of(node_of({.master_port = 4}, {})), "0 of 1 at 127.0.0.1:4");
  EXPECT_EQ(text_of(node_of({.rank = 0, .count = 1, .master_addr = "here"}, {})), "0 of 1 at here:29500");
  EXPECT_EQ(text_of(node_of({.count = 1}, {{"MASTER_ADDR", "elsewhere"}})), "0 of 1 at 127.0.0.1:0");
}

TEST(Node, FromTheOptionsOfEveryMachine) {
  EXPECT_EQ(text_of(node_of({.rank = 1, .count = 2, .master_addr = "a", .master_port = 9901}, {})), "1 of 2 at a:9901");
  EXPECT_EQ(text_of(node_of({.rank = 1, .count = 2}, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "9"}})), "1 of 2 at b:9");
  EXPECT_EQ(text_of(node_of({.rank = 0, .count = 2, .master_addr = "a"}, {{"MASTER_ADDR", "b"}})), "0 of 2 at a:29500");
  EXPECT_EQ(text_of(node_of({.count = 2, .master_addr = "a"}, {{"JOB_COMPLETION_INDEX", "1"}})), "1 of 2 at a:29500");
}

TEST(Node, FromALauncherThatStartedOneProcessOnEachMachine) {
  const Node node = node_of({}, kSlurm);
  EXPECT_EQ(node.index, 1u);
  EXPECT_EQ(node.count, 2u);
  EXPECT_EQ(node.master_addr, "gpu03");
  EXPECT_GE(node.master_port, 20'000u);
  EXPECT_EQ(node.told_by, "Slurm");
  EXPECT_EQ(node_of({.count = 2}, kSlurm).master_addr, "gpu03");
  EXPECT_EQ(node_of({}, with(kSlurm, {{"SLURM_PROCID", "0"}})).master_port, node.master_port) << "one port for the job";
  EXPECT_EQ(text_of(node_of({.master_port = 5}, with(kSlurm, {{"MASTER_ADDR", "head"}}))), "1 of 2 at head:5");
  const Variables mpi = {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"MASTER_ADDR", "a"},          {"MASTER_PORT", "6"}};
  EXPECT_EQ(text_of(node_of({}, mpi)), "2 of 3 at a:6");
  const Variables kubeflow = {{"PET_NNODES", "2"},
                              {"PET_NODE_RANK", "1"},
                              {"PET_NPROC_PER_NODE", "4"},
                              {"PET_MASTER_ADDR", "job-worker-0"},
                              {"PET_MASTER_PORT", "23456"}};
  EXPECT_EQ(text_of(node_of({}, kubeflow)), "1 of 2 at job-worker-0:23456 with 4");
  EXPECT_EQ(
      text_of(node_of({}, with(kubeflow, {{"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "7"}}))),
      "1 of 2 at m:7 with 4");
}

TEST(Node, IsNotGuessed) {
  EXPECT_THAT(refusal({.count = 2}), HasSubstr("--num_nodes 2, and nothing says which of them this is"));
  EXPECT_THAT(refusal({.rank = 1}), HasSubstr("--node_rank 1 without --num_nodes"));
  EXPECT_THAT(refusal({.rank = 2, .count = 2, .master_addr = "a"}), HasSubstr("this is node 2 of 2"));
  EXPECT_THAT(refusal({.rank = 1, .count = 1}), HasSubstr("this is node 1 of 1"));
  EXPECT_THAT(refusal({.rank = 1, .count = 2}), HasSubstr("node 1 of 2 does not know the machine of node 0"));
  EXPECT_THAT(refusal({.count = 3}, kSlurm), HasSubstr("nothing says which of them this is"));
  EXPECT_THAT(refusal({.count = 1}, kSlurm), HasSubstr("--num_nodes 1, but Slurm started this as rank 1 of 2"));
  EXPECT_THAT(refusal({.rank = 0, .count = 2, .master_addr = "a"}, {{"MASTER_PORT", "x"}}), HasSubstr("MASTER_PORT is 'x'"));
  EXPECT_THAT(refusal({}, with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"}})),
              HasSubstr("gannet run starts all ranks of a machine: each of these launchers would train by itself"));
  EXPECT_THAT(refusal({}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("would train by itself"));
  EXPECT_THAT(refusal({}, {{"PET_NNODES", "1:4"}, {"PET_NODE_RANK", "1"}}), HasSubstr("would train by itself"));
  // Rank 0 may be on another machine than the first of the list.
  EXPECT_THAT(refusal({}, with(kSlurm, {{"SLURM_DISTRIBUTION", "arbitrary"}})), HasSubstr("MASTER_ADDR, MASTER_PORT"));
  EXPECT_THAT(refusal({}, with(kSlurm, {{"SLURM_HET_SIZE", "2"}})), HasSubstr("MASTER_ADDR, MASTER_PORT"));
}

TEST(FirstHost, IsTheFirstOfSlurmsList) {
  using gannet::control::first_host_of;
  EXPECT_EQ(first_host_of("gpu03"), "gpu03");
  EXPECT_EQ(first_host_of("gpu[03-07,9],login1"), "gpu03");
  EXPECT_EQ(first_host_of("a,b"), "a");
  EXPECT_EQ(first_host_of("rack[1-2]node[3,5]-ib"), "rack1node3-ib");
  EXPECT_EQ(first_host_of("n[1"), "");
  EXPECT_EQ(first_host_of(""), "");
}

}  // namespace
