// What a cache saves is told to a C listener and accepted by another cache; also the calls for
// libraries on top of the C ABI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "support/c_sequences.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

struct Heard {
  stemma_saved_part part;
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> words;
  stemma_content_key key;
  uint32_t priority;
};

class SequenceSaved : public SequencesFixture {
 protected:
  void SetUp() override {
    options.listener.saved = on_saved;
    options.listener.user = this;
  }
  static uint32_t on_wants(void* user, uint32_t kind, const stemma_content_key*, uint32_t seen) {
    EXPECT_EQ(kind, static_cast<uint32_t>(STEMMA_SAVED_SEGMENT));
    ++static_cast<SequenceSaved*>(user)->asked[seen];
    return seen == STEMMA_SEEN_LEAVING ? 5 : 0;
  }
  static void on_take(void* user, const stemma_saved_part* part, const stemma_content_key* key,
                      uint32_t priority, const uint32_t* words, size_t word_count,
                      uint32_t wanted) {
    auto& self = *static_cast<SequenceSaved*>(user);
    EXPECT_EQ(wanted, 5U);
    EXPECT_EQ(word_count, part->range.end - part->range.begin);
    EXPECT_REFUSED(STEMMA_BUSY, "another call", stemma_sequences_drop_saved, self.cache);
    self.taken.push_back({*part,
                          {part->bytes, part->bytes + part->size},
                          {words, words + word_count},
                          *key,
                          priority});
  }
  static void on_saved(void* user, const stemma_scope* scope, const stemma_prompt* prompt,
                       const stemma_saved_part* part, const stemma_content_key* key,
                       uint32_t priority) {
    auto& self = *static_cast<SequenceSaved*>(user);
    EXPECT_EQ(std::memcmp(scope, &self.scope, sizeof *scope), 0);
    self.heard.push_back({*part,
                          {part->bytes, part->bytes + part->size},
                          {prompt->tokens, prompt->tokens + prompt->token_count},
                          *key,
                          priority});
    // Calls may look, but none may change anything.
    uint32_t pending = 0;
    EXPECT_OK(stemma_sequences_pending(self.cache, &pending));
    EXPECT_REFUSED(STEMMA_BUSY, "another call", stemma_sequences_drop_saved, self.cache);
  }
  void drain() { EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 1, nullptr)); }
  std::vector<stemma_saved_part> parts() {
    std::vector<stemma_saved_part> parts;
    for (Heard& one : heard) {
      parts.push_back(one.part);
      parts.back().bytes = one.bytes.data();
    }
    return parts;
  }

  std::vector<Heard> heard;
  std::vector<Heard> taken;
  uint32_t asked[2] = {};
};

TEST_F(SequenceSaved, WhatOneCacheSavedServesAnother) {
  create();
  const std::vector<uint32_t> words = tokens(200).tokens;
  serve(words);
  drain();
  ASSERT_GE(heard.size(), 3U);
  uint32_t covered = 0;
  for (const Heard& one : heard) {
    EXPECT_EQ(one.part.kind, static_cast<uint32_t>(STEMMA_SAVED_SEGMENT));
    EXPECT_EQ(one.part.range.begin, covered);
    EXPECT_EQ(one.priority, static_cast<uint32_t>(STEMMA_DEFAULT_PRIORITY));
    EXPECT_TRUE(
        std::equal(one.words.begin(), one.words.begin() + one.part.range.end, words.begin()));
    covered = one.part.range.end;
  }
  EXPECT_GE(covered, 199U);

  FakeSequences other_engine(engine_options());
  CEngine other_c(other_engine);
  stemma_sequences* other = nullptr;
  ASSERT_OK(stemma_sequences_create(&other_c.c, nullptr, &other));
  const stemma_prompt prompt = c_prompt(words);
  stemma_admitted admitted{};
  const std::vector<stemma_saved_part> all = parts();
  ASSERT_OK(
      stemma_sequences_admit(other, &scope, &prompt, all.data(), all.size(), nullptr, &admitted));
  EXPECT_EQ(admitted.taken, all.size());
  EXPECT_GT(admitted.bytes, 0U);
  uint32_t saved = 0;
  ASSERT_OK(stemma_sequences_saved_tokens(other, &scope, &prompt, &saved));
  EXPECT_GE(saved, 192U);
  ASSERT_OK(
      stemma_sequences_admit(other, &scope, &prompt, all.data(), all.size(), nullptr, &admitted));
  EXPECT_EQ(admitted.present, all.size());
  stemma_turn turn = 0;
  uint32_t available = 0;
  ASSERT_OK(stemma_sequences_begin(other, &scope, &prompt, nullptr, &turn));
  ASSERT_OK(stemma_turn_execute(turn, &available));
  EXPECT_EQ(available, 199U);
  EXPECT_EQ(other_engine.right(SequenceId{place(turn).sequence}, std::span(words).first(available)),
            "");
  ASSERT_OK(stemma_turn_abandon(turn));
  ASSERT_OK(stemma_sequences_destroy(other, STEMMA_ON_BUSY_REFUSE));
}

TEST_F(SequenceSaved, PartsThatMakeNoSenseAreNamed) {
  create();
  const std::vector<uint32_t> words = tokens(64).tokens;
  const stemma_prompt prompt = c_prompt(words);
  const uint8_t byte = 1;
  const auto refused_part = [&](const char* culprit, stemma_saved_part part) {
    const stemma_saved_part two[] = {{STEMMA_SAVED_SEGMENT, 0, {0, 64}, &byte, 1}, part};
    EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, culprit, stemma_sequences_admit, cache, &scope, &prompt,
                   two, 2, nullptr, nullptr);
    EXPECT_EQ(stemma_last_error_value(), 1U);
  };
  refused_part("kind", {1, 0, {0, 64}, &byte, 1});
  refused_part("kind", {6, 0, {0, 64}, &byte, 1});
  refused_part("reserved", {STEMMA_SAVED_STATE, 1, {0, 64}, &byte, 1});
  refused_part("bytes", {STEMMA_SAVED_STATE, 0, {0, 64}, nullptr, 1});
  refused_part("bytes", {STEMMA_SAVED_STATE, 0, {0, 64}, &byte, 0});
  refused_part("range", {STEMMA_SAVED_STATE, 0, {64, 64}, &byte, 1});
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "parts is null", stemma_sequences_admit, cache, &scope,
                 &prompt, nullptr, 1, nullptr, nullptr);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_sequences_saved_tokens, cache,
                 &scope, &prompt, nullptr);
  EXPECT_OK(stemma_sequences_admit(cache, &scope, &prompt, nullptr, 0, nullptr, nullptr));
}

TEST_F(SequenceSaved, WhatIsHandedOnIsWhatWasSaved) {
  options.listener.wants = on_wants;
  options.listener.take = on_take;
  options.listener.keep_words = 1;
  create();
  const std::vector<uint32_t> words = tokens(200).tokens;
  serve(words);
  drain();
  EXPECT_EQ(asked[STEMMA_SEEN_LEAVING], 0U);
  stemma_handed_on done{};
  ASSERT_OK(stemma_sequences_hand_on(cache, 0, 1, &done));
  EXPECT_EQ(done.parts, 1U);
  EXPECT_EQ(done.over, 0U);
  ASSERT_OK(stemma_sequences_hand_on(cache, done.next, UINT64_MAX, &done));
  EXPECT_EQ(done.over, 1U);
  ASSERT_EQ(taken.size(), heard.size());
  for (const Heard& one : taken) {
    const auto same = std::find_if(heard.begin(), heard.end(), [&](const Heard& other) {
      return std::memcmp(&one.key, &other.key, sizeof one.key) == 0;
    });
    ASSERT_NE(same, heard.end());
    EXPECT_EQ(one.bytes, same->bytes);
    EXPECT_EQ(one.part.range.begin, same->part.range.begin);
    EXPECT_EQ(one.priority, same->priority);
    EXPECT_TRUE(
        std::equal(one.words.begin(), one.words.end(), words.begin() + one.part.range.begin));
  }
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "out is null", stemma_sequences_hand_on, cache, 0, 1,
                 nullptr);
}

TEST_F(SequenceSaved, ListenersThatAreNoneAreNamed) {
  options.listener.keep_words = 2;
  stemma_sequences* none = nullptr;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "keep_words", stemma_sequences_create, &c_engine.c,
                 &options, &none);
  options.listener.keep_words = 0;
  options.listener.reserved = 1;
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "reserved", stemma_sequences_create, &c_engine.c,
                 &options, &none);
}

TEST_F(SequenceSaved, ACallerThatKnowsNoListenerIsStillServed) {
  options.struct_size = offsetof(stemma_sequence_options, listener);
  create();
  serve(tokens(200).tokens);
  drain();
  EXPECT_TRUE(heard.empty());  // What lies beyond its struct was not read.
}

TEST(LibrariesOnTop, TellTheirErrorsAsOurs) {
  std::string message = "what is wrong";
  std::string call = "stemma_other_call";
  EXPECT_EQ(stemma_fail(call.c_str(), STEMMA_BUSY, message.c_str(), 7), STEMMA_BUSY);
  message.assign(message.size(), 'x');  // It was copied.
  call.assign(call.size(), 'x');
  EXPECT_STREQ(stemma_last_error_message(), "stemma_other_call: busy: what is wrong (7)");
  EXPECT_EQ(stemma_last_error_value(), 7U);
  EXPECT_EQ(stemma_fail("call", STEMMA_OK, nullptr, UINT32_MAX), STEMMA_INVALID_ARGUMENT);
  EXPECT_STREQ(stemma_last_error_message(), "call: invalid_argument: ");
  EXPECT_EQ(stemma_fail(nullptr, 99, std::string(1000, 'y').c_str(), 0), STEMMA_INVALID_ARGUMENT);
  EXPECT_LT(std::strlen(stemma_last_error_message()), 320U);
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "io is 0", stemma_io_done, 0, STEMMA_OK);
}

TEST(LibrariesOnTop, HaveTransfersThatStemmaIoDoneEnds) {
  stemma_status told = -1;
  const auto done = [](void* user, stemma_status outcome) {
    *static_cast<stemma_status*>(user) = outcome;
  };
  const stemma_io io = stemma_io_begin(done, &told);
  ASSERT_NE(io, 0U);
  EXPECT_EQ(told, -1);
  EXPECT_OK(stemma_io_done(io, STEMMA_CORRUPT));
  EXPECT_EQ(told, STEMMA_CORRUPT);
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_io_done, io, STEMMA_OK);
  EXPECT_EQ(stemma_io_begin(nullptr, nullptr), 0U);
}

TEST(LibrariesOnTop, LogToTheSameHandler) {
  struct Line {
    uint32_t level = 99;
    std::string text;
  } line;
  ASSERT_OK(
      stemma_set_log_handler([](void* user, uint32_t level, const char* text,
                                size_t size) { *static_cast<Line*>(user) = {level, {text, size}}; },
                             &line));
  stemma_log(STEMMA_LOG_WARNING, "a line", 6);
  EXPECT_EQ(line.level, static_cast<uint32_t>(STEMMA_LOG_WARNING));
  EXPECT_EQ(line.text, "a line");
  stemma_log(77, "worse", 5);
  EXPECT_EQ(line.level, static_cast<uint32_t>(STEMMA_LOG_ERROR));
  stemma_log(STEMMA_LOG_INFO, nullptr, 5);
  EXPECT_EQ(line.text, "worse");
  ASSERT_OK(stemma_set_log_handler(nullptr, nullptr));
}

}  // namespace
}  // namespace stemma::test
