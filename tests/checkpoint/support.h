// Shared by the tests of checkpoints: a temporary folder, ranks as threads, and errors as text.
#pragma once

#include <ATen/ATen.h>
#include <gannet/error.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/support.h"
#include "checkpoint/checkpoint.h"

namespace gannet::checkpoint {

namespace fs = std::filesystem;

// A world of threads: gather is a barrier through which the texts go.
class ThreadRanks {
 public:
  explicit ThreadRanks(uint32_t size) : size_(size) {}

  // body(ranks) on each rank; the message of what each threw, "" where nothing was.
  std::vector<std::string> run(const std::function<void(const Ranks&)>& body) {
    std::vector<std::string> errors(size_);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size_; ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(ranks(rank));
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    return errors;
  }

 private:
  Ranks ranks(uint32_t rank) {
    return {rank, size_, [this, rank](const std::string& what, const std::string& text) { return gather(rank, what, text); }};
  }

  std::vector<std::string> gather(uint32_t rank, const std::string& what, const std::string& text) {
    std::unique_lock lock(mutex_);
    Round& round = rounds_[counts_[{rank, what}]++][what];
    round.texts.resize(size_);
    round.texts[rank] = text;
    if (++round.arrived == size_) changed_.notify_all();
    changed_.wait(lock, [&] { return round.arrived == size_; });
    return round.texts;
  }

  struct Round {
    std::vector<std::string> texts;
    uint32_t arrived = 0;
  };
  uint32_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, std::string>, int> counts_;
  std::map<int, std::map<std::string, Round>> rounds_;
};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder() const { return (root_ / "run").string(); }
  std::string file(const std::string& tag, const std::string& name) const { return folder() + "/" + tag + "/" + name; }

  fs::path root_ = fs::temp_directory_path() / ("gannet-checkpoint-" + std::to_string(::getpid()));
};

inline Slice whole(const std::string& name, const at::Tensor& tensor) { return {name, tensor.sizes().vec(), 0, tensor}; }

inline Content small_content(const std::string& tag, double value = 1) {
  Content content;
  content.tag = tag;
  content.slices = {whole("a", at::full({5, 3}, value, at::kFloat)), whole("b", at::arange(7, at::kLong))};
  content.document = {{"global_steps", static_cast<int64_t>(value)}, {"note", "x"}};
  return content;
}

inline at::Tensor read_whole(const Opened& opened, const std::string& name) {
  const TensorInfo* info = opened.find(name);
  if (!info) throw Error(ErrorCode::kArgument, "no tensor " + name);
  at::Tensor into = at::empty(info->shape, info->dtype);
  opened.read({{name, 0, into}});
  return into;
}

}  // namespace gannet::checkpoint
