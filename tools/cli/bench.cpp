// gannet bench nvme PATH: measures a drive for the nvme offload, and prints the `aio` section for
// the config.
#include <gannet/error.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "base/format.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/nvme_speed.h"

namespace gannet::cli {
namespace {

struct BenchArguments {
  NvmeRun run;
  bool quick = false, json = false, no_checksum = false;
  std::vector<uint64_t> block_sizes;
  std::vector<int64_t> queue_depths, parallelisms;
};

template <class Number>
std::vector<Number> given_or(const std::vector<Number>& given, std::vector<Number> otherwise) {
  return given.empty() ? otherwise : given;
}

std::vector<NvmePoint> points_of(const BenchArguments& arguments) {
  const bool quick = arguments.quick;
  // If one of the three options is given, the others use the config's defaults unless they are
  // given as well.
  const bool fixed = !arguments.block_sizes.empty() || !arguments.queue_depths.empty() || !arguments.parallelisms.empty();
  const NvmePoint plain;
  std::vector<uint64_t> blocks{plain.block_size};
  std::vector<int64_t> depths{plain.queue_depth}, parallel{plain.parallelism};
  if (!fixed) {
    blocks = quick ? std::vector<uint64_t>{1u << 20, 8u << 20} : std::vector<uint64_t>{256u << 10, 1u << 20, 8u << 20};
    depths = {8, 32};
    parallel = quick ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2};
  }
  std::vector<NvmePoint> points;
  for (const int64_t threads : given_or(arguments.parallelisms, parallel))
    for (const uint64_t block : given_or(arguments.block_sizes, blocks))
      for (const int64_t depth : given_or(arguments.queue_depths, depths)) points.push_back({block, depth, threads});
  return points;
}

std::string fixed_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::vector<std::string> row_of(const NvmeSpeed& speed) {
  return {std::to_string(speed.point.block_size),  std::to_string(speed.point.queue_depth),
          std::to_string(speed.point.parallelism), fixed_text(speed.write_gb_s, 2),
          fixed_text(speed.read_gb_s, 2),          fixed_text(speed.write_cpu_ms_per_gib, 1),
          fixed_text(speed.read_cpu_ms_per_gib, 1)};
}

std::string json_of(const NvmeSpeed& speed) {
  Dict line = speed.point.aio();
  line["write_gb_s"] = speed.write_gb_s;
  line["read_gb_s"] = speed.read_gb_s;
  line["write_cpu_ms_per_gib"] = speed.write_cpu_ms_per_gib;
  line["read_cpu_ms_per_gib"] = speed.read_cpu_ms_per_gib;
  return Value(std::move(line)).to_json();
}

void print_section(const NvmePoint& point) {
  std::cout << "\n\"aio\": {\n";
  const Dict section = point.aio();
  const auto& entries = section.entries();
  for (size_t i = 0; i < entries.size(); ++i)
    std::cout << "  \"" << entries[i].first << "\": " << entries[i].second.to_json() << (i + 1 < entries.size() ? ",\n" : "\n");
  std::cout << "}\n";
}

void bench_nvme(BenchArguments arguments) {
  arguments.run.checksum = !arguments.no_checksum;
  if (arguments.quick) arguments.run.bytes = std::min(arguments.run.bytes, uint64_t{256} << 20);
  const auto points = points_of(arguments);
  for (const NvmePoint& point : points)
    if (arguments.run.bytes < point.block_size)
      throw Error(ErrorCode::kArgument,
                  formatted("--size {} is less than one block of {} bytes", arguments.run.bytes, point.block_size),
                  "give a larger --size; 1G or more for meaningful figures");
  plugin::Registry registry({});
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_OFFLOAD, "nvme");
  const Host host;
  std::vector<NvmeSpeed> speeds;
  Table table({"block_size", "queue_depth", "parallelism", "write GB/s", "read GB/s", "write CPU-ms/GiB", "read CPU-ms/GiB"});
  for (const NvmePoint& point : points) {
    if (!arguments.json) std::cerr << "\rpoint " << speeds.size() + 1 << " of " << points.size() << std::flush;
    speeds.push_back(measure_nvme(plugin, host, arguments.run, point));
    if (arguments.json) std::cout << json_of(speeds.back()) << std::endl;
    table.add(row_of(speeds.back()));
  }
  if (arguments.json) return;
  std::cerr << '\r';
  std::cout << table.to_string()
            << "\nfor the config (the fastest; among those within 3% of it, the one with the least in flight):\n";
  print_section(best_of(speeds).point);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(1);
  auto* nvme = command->add_subcommand("nvme", "Measure a drive as the nvme offload uses it, and print the aio section to use");
  auto arguments = std::make_shared<BenchArguments>();
  const CLI::AsSizeValue size(/*kb_is_1000=*/false);
  nvme->add_option("path", arguments->run.folder, "a folder on the drive")->required();
  nvme->add_option("--size", arguments->run.bytes, "bytes written and read at each point: 1G, 512M ...")
      ->transform(size)
      ->capture_default_str();
  nvme->add_flag("--quick", arguments->quick, "fewer points, 256M each");
  nvme->add_option("--rounds", arguments->run.rounds, "rounds of each point; the median is reported")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  nvme->add_option("--block_size", arguments->block_sizes, "only these values, instead of the sweep")->transform(size);
  nvme->add_option("--queue_depth", arguments->queue_depths, "these only")->check(CLI::PositiveNumber);
  nvme->add_option("--intra_op_parallelism", arguments->parallelisms, "these only")->check(CLI::PositiveNumber);
  nvme->add_flag("--no-checksum", arguments->no_checksum, "skip the blocks' checksums");
  nvme->add_flag("--json", arguments->json, "one line of JSON per point instead of the table");
  nvme->callback([arguments] { bench_nvme(*arguments); });
}

}  // namespace gannet::cli
