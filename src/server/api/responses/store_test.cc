// Tests the store of responses: bounded, separate for each salt, least recently used first out.
#include "server/api/responses/store.h"

#include <gtest/gtest.h>

#include <string>

// A separate namespace, because sources are compiled together.
namespace stemma::server::response_store_test {
namespace {

StoredResponse response(const std::string& previous = "", size_t bytes = 100) {
  return {.head = "{",
          .output = std::string(bytes, 'x'),
          .tail = "}",
          .input = "[]",
          .previous_id = previous};
}

TEST(ResponseStore, IsFoundUnderItsSaltOnly) {
  ResponseStore store({});
  store.put("a", "resp_1", response());
  ASSERT_NE(store.find("a", "resp_1"), nullptr);
  EXPECT_EQ(store.find("a", "resp_1")->text(), "{" + std::string(100, 'x') + "}");
  EXPECT_EQ(store.find("b", "resp_1"), nullptr);
  EXPECT_EQ(store.find("", "resp_1"), nullptr);
  EXPECT_FALSE(store.erase("b", "resp_1"));
  EXPECT_TRUE(store.erase("a", "resp_1"));
  EXPECT_EQ(store.stats().bytes, 0U);
}

TEST(ResponseStore, IsForgottenWithItsSalt) {
  ResponseStore store({});
  for (const char* salt : {"", "a", "ab", "b"}) store.put(salt, "resp_1", response());
  store.forget("a");
  EXPECT_EQ(store.find("a", "resp_1"), nullptr);
  for (const char* salt : {"", "ab", "b"}) EXPECT_NE(store.find(salt, "resp_1"), nullptr) << salt;
  store.forget_all();
  EXPECT_EQ(store.stats().entries, 0U);
  EXPECT_EQ(store.stats().bytes, 0U);
}

TEST(ResponseStore, HoldsNoMoreThanItsBytes) {
  ResponseStore store({.bytes = 4000});
  for (int i = 0; i < 100; ++i) {
    store.put("", "resp_" + std::to_string(i), response());
    EXPECT_LE(store.stats().bytes, 4000U);
    store.find("", "resp_0");  // This one is used all the time.
  }
  EXPECT_NE(store.find("", "resp_0"), nullptr);
  EXPECT_NE(store.find("", "resp_99"), nullptr);
  EXPECT_EQ(store.find("", "resp_50"), nullptr);
  EXPECT_EQ(store.stats().evicted, 100 - store.stats().entries);
  store.put("", "resp_large", response("", 5000));
  EXPECT_EQ(store.find("", "resp_large"), nullptr);
  EXPECT_NE(store.find("", "resp_0"), nullptr) << "one that is too large pushes nothing out";
}

TEST(ResponseStore, AConversationIsAllOrNothing) {
  ResponseStore store({});
  store.put("", "resp_1", response());
  store.put("", "resp_2", response("resp_1"));
  store.put("", "resp_3", response("resp_2"));
  ASSERT_EQ(store.chain("", "resp_3").size(), 3U);
  EXPECT_EQ(store.chain("", "resp_3").back()->previous_id, "resp_2");
  store.erase("", "resp_1");
  EXPECT_TRUE(store.chain("", "resp_3").empty());
}

TEST(ResponseStore, AnItemNamesItsResponse) {
  EXPECT_EQ(ResponseStore::response_of_item("msg_abc_12"), "resp_abc");
  EXPECT_EQ(ResponseStore::response_of_item("msg_01a1f04a-04c0-77b1"), "");
  EXPECT_EQ(ResponseStore::response_of_item(""), "");
}

}  // namespace
}  // namespace stemma::server::response_store_test
