// Recomputation of an exported model in segments, against the plain run: peak of live tensor bytes, wall time, and the bits of
// every gradient, with dropout on.
//
//   build/bench/segments_bench FOLDER [--rows 4] [--length 128] [--rounds 9]     FOLDER: of bench/activation/gpt2.py
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gannet/checkpointing.h>
#include <gannet/exported.h>
#include <gannet/pipe.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "../common/rounds.h"

namespace {

using gannet::ExportedModule;
using gannet::Layer;
using gannet::Wire;

// The CPU's allocator, which counts the bytes of live tensors and their peak since begin().
class Meter : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* const block = new Block{inner_->allocate(bytes), static_cast<int64_t>(bytes)};
    live_ += block->bytes;
    peak_ = std::max(peak_, live_);
    return {block->data.get(), block, &Meter::release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  void begin() { base_ = peak_ = live_; }
  double peak_mib() const { return static_cast<double>(peak_ - base_) / (1 << 20); }
  double live_mib() const { return static_cast<double>(live_ - base_) / (1 << 20); }

 private:
  struct Block {
    c10::DataPtr data;
    int64_t bytes;
  };
  static void release(void* context);
  c10::Allocator* const inner_ = c10::GetDefaultCPUAllocator();
  int64_t live_ = 0, peak_ = 0, base_ = 0;  // of one thread
};

Meter& meter() {
  static Meter& only = *new Meter;  // never destroyed: tensors are released after main()
  return only;
}

void Meter::release(void* context) {
  auto* const block = static_cast<Block*>(context);
  meter().live_ -= block->bytes;
  delete block;
}

// As activation_checkpointing.number_checkpoints divides layers: the first groups have one more.
std::vector<std::vector<Layer>> groups_of(const std::vector<Layer>& layers, size_t count) {
  std::vector<std::vector<Layer>> groups;
  for (size_t g = 0, next = 0; g < count; ++g) {
    const size_t size = layers.size() / count + (g < layers.size() % count ? 1 : 0);
    groups.emplace_back(layers.begin() + static_cast<std::ptrdiff_t>(next),
                        layers.begin() + static_cast<std::ptrdiff_t>(next + size));
    next += size;
  }
  return groups;
}

// `segments` 0: the whole graph, nothing recomputed.
at::Tensor loss_in(ExportedModule& model, const std::vector<Layer>& layers, const gannet::NamedBatch& batch, size_t segments) {
  if (segments == 0) return model.forward(batch);
  const gannet::pipe::MicroBatch micro_batch = model.micro_batch(batch);
  Wire wire = micro_batch.inputs;
  for (const auto& group : groups_of(layers, segments))
    wire = gannet::checkpointing::checkpoint([group](const Wire& in) { return gannet::detail::run_layers(group, in); }, wire);
  wire.insert(wire.end(), micro_batch.labels.begin(), micro_batch.labels.end());
  return model.pipeline_loss(wire);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "segments_bench FOLDER [--rows 4] [--length 128] [--rounds 9]\n");
    return 2;
  }
  int64_t rows = 4, length = 128;
  int rounds = 9;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int64_t value = std::stoll(argv[i + 1]);
    if (name == "--rows") rows = value;
    if (name == "--length") length = value;
    if (name == "--rounds") rounds = static_cast<int>(value);
  }
  torch::set_num_threads(1);
  c10::SetAllocator(c10::kCPU, &meter(), /*priority=*/100);
  const auto model = gannet::from_pretrained<ExportedModule>(argv[1]);
  const std::vector<Layer> layers = model->layers();
  torch::manual_seed(2);
  const at::Tensor ids = torch::randint(1, 1000, {rows, length}, at::kLong);
  const gannet::NamedBatch batch = {{"input_ids", ids}, {"labels", ids}};
  std::map<size_t, double> peaks, gradients;
  std::map<std::string, at::Tensor> plain;
  size_t different = 0;
  const auto step = [&](size_t segments) {
    model->zero_grad(/*set_to_none=*/true);
    torch::manual_seed(3);
    meter().begin();
    loss_in(*model, layers, batch, segments).backward();
    peaks[segments] = meter().peak_mib();
    gradients[segments] = meter().live_mib();
  };
  const std::vector<size_t> all = {0, 1, 2, 4, 8};
  for (const size_t segments : all) {  // the gradients' bits
    step(segments);
    for (const auto& entry : model->named_parameters()) {
      if (segments == 0) plain[entry.key()] = entry.value().grad().clone();
      if (!at::equal(entry.value().grad(), plain.at(entry.key()))) ++different;
    }
  }
  std::vector<gannet::bench::Contender> contenders;
  const auto name_of = [](size_t segments) { return segments == 0 ? std::string("plain") : std::to_string(segments); };
  for (const size_t segments : all) contenders.push_back({name_of(segments), [&step, segments] { step(segments); }});
  const gannet::bench::Rounds times = gannet::bench::alternate(contenders, rounds);
  std::printf("%zu layers, %ld x %ld tokens, %d rounds, one thread; %zu of %zu gradients differ from the plain run's\n",
              layers.size(), rows, length, rounds, different, plain.size() * (all.size() - 1));
  for (const size_t segments : all)
    std::printf("%-5s peak %.1f MiB, of which gradients %.1f; %.1f ms\n", name_of(segments).c_str(), peaks[segments],
                gradients[segments], gannet::bench::median(times.at(name_of(segments))) * 1e3);
  for (const size_t segments : all)
    if (segments > 0)
      gannet::bench::print_figure("recompute", times, name_of(segments), "plain",
                                  {{"peak_mib", peaks[segments]}, {"plain_peak_mib", peaks[0]}});
  return different == 0 ? 0 : 1;
}
