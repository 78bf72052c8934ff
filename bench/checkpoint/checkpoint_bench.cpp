// Writes and reads 1 GiB of fp32 tensors: our checkpoint against torch::save and torch::load,
// alternating, both synced.
//
//   checkpoint_bench FOLDER [rounds [MiB]]
//
// "cold": both files' pages were dropped from the page cache, as after a restart on another host.
// "as_saved": the cache as the saves left it; ours bypasses the cache. "cached": both were read
// through the cache before. The speeds of a program that only reads from the disk and from the
// cache are shown for comparison: no load can be faster.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "common/rounds.h"

namespace gannet::bench {
namespace {

namespace fs = std::filesystem;

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  if (file < 0 || ::fsync(file) != 0) std::abort();
  ::close(file);
}

void drop_pages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  if (file < 0 || ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) std::abort();
  ::close(file);
}

struct Work {
  std::string folder, theirs;
  std::vector<at::Tensor> tensors, into, loaded;
  checkpoint::Content content{.tag = "bench"};

  Work(const std::string& place, int64_t megabytes) : folder(place + "/ours"), theirs(place + "/theirs.pt") {
    // As many tensors as a model of this size has: 16 MiB matrices, each with a small vector.
    for (int64_t i = 0; i < megabytes / 16; ++i) {
      tensors.push_back(at::randn({2048, 2048}));
      tensors.push_back(at::randn({2048}));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      into.push_back(at::zeros_like(tensors[i]));
      loaded.push_back(at::zeros_like(tensors[i]));
      content.slices.push_back({"parameter/" + std::to_string(i), tensors[i].sizes().vec(), 0, tensors[i]});
    }
  }

  void save_ours(checkpoint::Saver& saver) { saver.save(content, {}); }
  void save_theirs() {
    torch::serialize::OutputArchive archive;
    for (size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i]);
    archive.save_to(theirs);
    sync_file(theirs);
  }
  void load_ours() {
    const auto opened = checkpoint::open(folder, {});
    std::vector<checkpoint::Target> targets;
    for (size_t i = 0; i < into.size(); ++i) targets.push_back({"parameter/" + std::to_string(i), 0, into[i]});
    opened.read(targets);
  }
  void load_theirs() {  // into new memory, which replaces the previous tensors: no copy
    torch::serialize::InputArchive archive;
    archive.load_from(theirs);
    for (size_t i = 0; i < loaded.size(); ++i) archive.read(std::to_string(i), loaded[i]);
  }
  void check() {
    for (size_t i = 0; i < into.size(); ++i)
      if (!at::equal(into[i], tensors[i]) || !at::equal(loaded[i], tensors[i])) std::abort();
  }
  // Reads our whole file with two threads into one small buffer each.
  void read_through_cache() const { read_file(0); }
  void read_from_disk() const { read_file(O_DIRECT); }
  void read_file(int flags) const {
    const std::string path = folder + "/bench/rank-00000.safetensors";
    const auto bytes = static_cast<off_t>(fs::file_size(path));
    constexpr off_t kBlock = 4 << 20;
    std::atomic<off_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        const int file = ::open(path.c_str(), O_RDONLY | flags);
        void* buffer = std::aligned_alloc(4096, kBlock);
        for (off_t at; (at = next.fetch_add(kBlock)) < bytes;)
          if (file < 0 || ::pread(file, buffer, kBlock, at) <= 0) std::abort();
        std::free(buffer);
        ::close(file);
      });
    for (auto& thread : threads) thread.join();
  }
  void drop() {
    for (at::Tensor& tensor : loaded) tensor = at::Tensor();
    drop_pages(folder + "/bench/rank-00000.safetensors");
    drop_pages(theirs);
  }
};

}  // namespace
}  // namespace gannet::bench

int main(int argc, char** argv) {
  using namespace gannet::bench;
  if (argc < 2) return std::fprintf(stderr, "checkpoint_bench FOLDER [rounds [MiB]]\n"), 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const int64_t megabytes = argc > 3 ? std::atoll(argv[3]) : 1024;
  std::filesystem::create_directories(argv[1]);
  Work work(argv[1], megabytes);
  gannet::checkpoint::Saver saver(work.folder, {});
  const Rounds saves = alternate({{"ours", [&] { work.save_ours(saver); }}, {"torch", [&] { work.save_theirs(); }}}, rounds);
  const Rounds as_saved = alternate({{"ours", [&] { work.load_ours(); }}, {"torch", [&] { work.load_theirs(); }}}, rounds);
  work.check();
  work.read_through_cache();
  const Rounds cached = alternate(
      {{"ours", [&] { work.load_ours(); }}, {"torch", [&] { work.load_theirs(); }}, {"read", [&] { work.read_through_cache(); }}},
      rounds);
  work.check();
  Rounds cold;
  for (int round = 0; round < rounds; ++round) {  // dropping is not timed
    work.drop();
    cold["ours"].push_back(seconds([&] { work.load_ours(); }));
    cold["torch"].push_back(seconds([&] { work.load_theirs(); }));
    cold["read"].push_back(seconds([&] { work.read_from_disk(); }));
    std::printf("cold %d  ours %.2f ms torch %.2f ms read %.2f ms\n", round + 1, cold["ours"].back() * 1e3,
                cold["torch"].back() * 1e3, cold["read"].back() * 1e3);
  }
  work.check();
  print_figure("checkpoint_save", saves, "ours", "torch", {{"bar", 1 / 1.6}});
  print_figure("checkpoint_load_cold", cold, "ours", "torch", {{"bar", 1 / 2.2}});
  print_figure("checkpoint_load_cold_vs_disk", cold, "ours", "read");
  print_figure("checkpoint_load_as_saved", as_saved, "ours", "torch", {{"bar", 1 / 2.2}});
  print_figure("checkpoint_load_cached", cached, "ours", "torch", {{"bar", 1 / 2.2}});
  print_figure("checkpoint_load_cached_vs_cache", cached, "ours", "read");
}
