// Damage: every flipped byte (one in five without GANNET_TEST_FULL) and every truncation of a small
// checkpoint is found and named, and a false manifest is not believed.
#include <gmock/gmock.h>
#include <xxhash.h>

#include <cstdlib>
#include <functional>

#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Damage : public CheckpointTest {
 protected:
  // Two ranks, two checkpoints: the older one is what is left when the newer is damaged.
  void save_two() {
    const auto errors = ThreadRanks(2).run([&](const Ranks& ranks) {
      Saver saver(folder(), ranks);
      for (int step : {1, 2}) {
        Content content{.tag = "step" + std::to_string(step)};
        content.slices.push_back({"w", {6}, 3 * ranks.rank, at::full({3}, step, at::kFloat)});
        content.rank_document = {{"seed", 1}};
        saver.save(content, {});
      }
    });
    ASSERT_THAT(errors, ElementsAre("", ""));
  }

  // The error of opening step2 and reading all of it; "" if there is none.
  std::string complaint() const {
    try {
      const Opened opened = open(folder(), {.tag = "step2"});
      if (!at::equal(read_whole(opened, "w"), at::full({6}, 2, at::kFloat))) return "READ WRONG VALUES";
      const auto faults = opened.verify();
      return faults.empty() ? "" : faults.front();
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(Damage, every_flipped_byte_is_detected_and_its_file_named) {
  save_two();
  for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string path = file("step2", name), good = read_text(path);
    for (size_t i = 0; i < good.size(); i += std::getenv("GANNET_TEST_FULL") ? 1 : 5) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      write_text(path, bad);
      ASSERT_THAT(complaint(), AllOf(HasSubstr(name), Not(HasSubstr("WRONG")))) << name << " byte " << i;
    }
    write_text(path, good);
    ASSERT_EQ(complaint(), "");
  }
}

TEST_F(Damage, every_flipped_bit_of_latest_is_explained_and_the_newest_used) {
  save_two();
  const std::string path = folder() + "/latest", good = read_text(path);
  ASSERT_THAT(open(folder(), {}).notes(), IsEmpty());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write_text(path, bad);
    const Opened opened = open(folder(), {});
    ASSERT_EQ(opened.tag(), "step2") << bit;
    ASSERT_THAT(opened.notes(), ElementsAre(AllOf(HasSubstr("`latest`"), HasSubstr("used step2")))) << bit;
  }
}

TEST_F(Damage, a_damaged_manifest_is_passed_over_for_the_one_before_it) {
  save_two();
  const std::string path = file("step2", "manifest.json"), good = read_text(path);
  for (size_t i = 0; i < good.size(); i += 17) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    write_text(path, bad);
    const Opened opened = open(folder(), {});
    ASSERT_EQ(opened.tag(), "step1");
    ASSERT_THAT(opened.notes(), ElementsAre(AllOf(HasSubstr("step2: manifest.json"), HasSubstr("used step1")))) << i;
  }
}

TEST_F(Damage, truncation_anywhere_is_detected_and_the_file_named) {
  const auto errors = ThreadRanks(2).run([&](const Ranks& ranks) {
    Saver saver(folder(), ranks);
    saver.save({.tag = "step2", .slices = {{"w", {100'000}, 50'000 * ranks.rank, at::randn({50'000})}}}, {});
  });
  ASSERT_THAT(errors, ElementsAre("", ""));
  for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string path = file("step2", name), good = read_text(path);
    for (size_t bytes = 0; bytes < good.size(); bytes += good.size() < 8192 ? 1 : 4096) {
      write_text(path, good.substr(0, bytes));
      EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open(folder(), {}); }), HasSubstr(name)) << bytes;
    }
    write_text(path, good + "x");
    EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open(folder(), {}); }), HasSubstr(name));
    write_text(path, good);
  }
}

TEST_F(Damage, a_file_that_shrinks_or_vanishes_after_it_was_opened_is_named_too) {
  save_two();
  const Opened opened = open(folder(), {});
  fs::resize_file(file("step2", "rank-00001.safetensors"), 4100);
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { read_whole(opened, "w"); }), AllOf(HasSubstr("rank-00001"), HasSubstr("'w'")));
  fs::remove(file("step2", "rank-00001.safetensors"));
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { read_whole(opened, "w"); }), HasSubstr("rank-00001"));
  EXPECT_THAT(opened.verify(), testing::Contains(HasSubstr("rank-00001")));
  EXPECT_NO_THROW(opened.read({{"w", 0, at::empty({3})}})) << "rank 0's half is whole";
}

TEST_F(Damage, a_manifest_that_lies_is_refused_before_anything_is_allocated) {
  Saver(folder(), {}).save({.tag = "t", .slices = {whole("v", at::zeros({4})), whole("w", at::zeros({4}))}}, {});
  const std::string good = read_text(file("t", "manifest.json"));
  ASSERT_NO_THROW(parse_manifest(good, "m"));
  ASSERT_NO_THROW(parse_manifest(lying(good, "\"format\": 2", "\"format\":  2"), "m"));
  struct Lie {
    const char *from, *to, *reason;
  };
  for (const Lie& lie : {
           Lie{"\"offset\":4096", "\"offset\":4100", "overlap"},
           Lie{"\"offset\":4096", "\"offset\":999999", "ends beyond rank-00000.safetensors"},
           Lie{"\"offset\":4096", "\"offset\":9223372036854775807", "ends beyond"},
           Lie{"\"offset\":4096", "\"offset\":-1", "'offset' is not a size"},
           Lie{"\"numel\":4", "\"numel\":3", "misses elements 3 to 4"},
           Lie{"\"numel\":4", "\"numel\":5", "reaches from element 0 over 5"},
           Lie{"\"begin\":0", "\"begin\":1", "reaches from element 1 over 4"},
           Lie{"\"begin\":0,\"numel\":4", "\"begin\":1,\"numel\":3", "misses elements 0 to 1"},
           Lie{"\"file\":0", "\"file\":1", "is in file 1 of 1"},
           Lie{"\"shape\":[4]", "\"shape\":[9223372036854775807,2]", "larger than any memory"},
           Lie{"\"shape\":[4]", "\"shape\":[4.0]", "'shape' is not a size"},
           Lie{"\"shape\":[4]", "\"shape\":4", "'shape' is not a list"},
           Lie{"\"shape\":[4]", "\"shape\":[5]", "misses elements 4 to 5"},
           Lie{"\"dtype\":\"F32\"", "\"dtype\":\"F33\"", "dtype 'F33'"},
           Lie{"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", ""},
           Lie{"\"name\":\"v\"", "\"name\":\"w\"", "names the tensor 'w' twice"},
           Lie{"\"slices\":[", "\"slice\":[", "has no 'slices'"},
           Lie{"\"bytes\":4128", "\"bytes\":9223372036854775807", "has 1 checksums, expected"},
           Lie{"\"bytes\":4128", "\"bytes\":18446744073709551615", "'bytes' is not a size"},
           Lie{"\"name\":\"rank-00000.safetensors\"", "\"name\":\"../../etc/passwd\"", "not one of a file beside the manifest"},
           Lie{"\"block_bytes\": 4194304", "\"block_bytes\": 0", "blocks of 0 bytes"},
           Lie{"\"block_bytes\": 4194304", "\"block_bytes\": 1099511627776", "'block_bytes' is not a size"},
           Lie{"\"world_size\": 1", "\"world_size\": 4294967295", "1 rank documents for 4294967295 ranks"},
           Lie{"\"document\": {}", "\"document\": []", "'document' is not a dictionary"},
           Lie{"\"document\": {}", "\"document\": {\"x\": 18446744073709551615}", "larger than 2^63"},
           Lie{"\"format\": 2", "\"format\": 0", "there never was"},
           Lie{"\"tag\"", "\"tog\"", "has no 'tag'"},
       })
    EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { parse_manifest(lying(good, lie.from, lie.to), "m"); }),
                AllOf(HasSubstr("m: "), HasSubstr(lie.reason)))
        << lie.from << " -> " << lie.to;
  std::string deep(5000, '[');
  EXPECT_THAT(
      error_of(ErrorCode::kCorrupt, [&] { parse_manifest(lying(good, "\"document\": {}", "\"document\": " + deep), "m"); }),
      HasSubstr("deeper"));
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { parse_manifest("", "m"); }), HasSubstr("does not begin with the checksum"));
}

TEST_F(Damage, a_newer_format_is_never_passed_over_in_silence) {
  save_two();
  const std::string path = file("step2", "manifest.json");
  write_text(path, lying(read_text(path), "\"format\": 2", "\"format\": 3"));
  for (const char* tag : {"", "step2"})
    EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { open(folder(), {.tag = tag}); }),
                AllOf(HasSubstr("is of format 3, written by Gannet 0.1.0"), HasSubstr("up to format 2"),
                      HasSubstr("load it with Gannet 0.1.0 or a newer one")));
  EXPECT_EQ(open(folder(), {.tag = "step1"}).tag(), "step1");
}

TEST_F(Damage, verify_compares_the_safetensors_header_with_the_manifest) {
  Saver(folder(), {}).save({.tag = "t", .slices = {whole("v", at::zeros({4})), whole("w", at::zeros({4}))}}, {});
  // A consistent forgery: the header of the file swaps the tensors' places, and the manifest has the checksum of that.
  const std::string path = file("t", "rank-00000.safetensors");
  std::string data = read_text(path);
  data.replace(data.find("\"v\""), 3, "\"x\"");
  write_text(path, data);
  const std::string manifest = read_text(file("t", "manifest.json"));
  const size_t at = manifest.find("\"blocks\":[\"") + 11;
  write_text(file("t", "manifest.json"), lying(manifest, manifest.substr(at, 16), hex(XXH3_64bits(data.data(), data.size()))));
  EXPECT_THAT(open(folder(), {}).verify(), ElementsAre(AllOf(HasSubstr("its header"), HasSubstr("'v'"))));
}

}  // namespace
}  // namespace gannet::checkpoint
