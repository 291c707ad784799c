import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.utils.SecurityUtils;

/**
 * Makes calls of Kafka's own admin client. Each line of stdin is a JSON array of a client's settings, a method's name
 * and its arguments; the answer is a line of JSON with all that the result tells by methods without parameters.
 */
public class JavaAdmin {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> OF_ALL_OBJECTS =
        Set.of("hashCode", "toString", "getClass", "clone", "notify", "notifyAll", "builder", "duplicate");

    private static final Map<String, Admin> CLIENTS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode task = JSON.readTree(line);
            Object answer;
            try {
                answer = shown(call(task.get(0), task.get(1).asText(), task.get(2)));
            } catch (Exception error) {
                answer = shown(error);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Admin client(JsonNode settings) {
        return CLIENTS.computeIfAbsent(settings.toString(), key -> {
            Map<String, Object> configs = new HashMap<>();
            settings.fields().forEachRemaining(field -> configs.put(field.getKey(), field.getValue().asText()));
            return Admin.create(configs);
        });
    }

    private static Object call(JsonNode settings, String name, JsonNode given) throws Exception {
        if (name.equals("methods")) {
            Set<String> names = new TreeSet<>();
            for (Method method : Admin.class.getMethods())
                if (!Modifier.isStatic(method.getModifiers()))
                    names.add(method.getName());
            return names;
        }
        if (name.equals("streamsGroupHeartbeat"))
            return heartbeat(given);
        Admin admin = client(settings);
        JsonNode first = given.get(0);
        switch (name) {
            case "describeCluster": {
                DescribeClusterResult found = admin.describeCluster(new DescribeClusterOptions()
                    .includeAuthorizedOperations(true).includeFencedBrokers(settings.has("bootstrap.servers")));
                Map<String, Object> told = new LinkedHashMap<>();
                told.put("clusterId", found.clusterId());
                told.put("controller", found.controller());
                told.put("nodes", found.nodes());
                told.put("authorizedOperations", found.authorizedOperations());
                return told;
            }
            case "describeTopics":
                return admin.describeTopics(texts(first), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                    .topicNameValues();
            case "listTopics":
                return admin.listTopics(new ListTopicsOptions().listInternal(true)).listings();
            case "describeConfigs":
                return admin.describeConfigs(resources(first),
                    new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).values();
            case "listConfigResources":
                return admin.listConfigResources().all();
            case "listClientMetricsResources":
                return admin.listClientMetricsResources().all();
            case "describeLogDirs":
                return admin.describeLogDirs(numbers(first)).descriptions();
            case "describeReplicaLogDirs": {
                List<TopicPartitionReplica> replicas = new ArrayList<>();
                first.forEach(one -> replicas.add(
                    new TopicPartitionReplica(one.get(0).asText(), one.get(1).asInt(), one.get(2).asInt())));
                return admin.describeReplicaLogDirs(replicas).values();
            }
            case "describeFeatures":
                return admin.describeFeatures().featureMetadata();
            case "describeMetadataQuorum":
                return admin.describeMetadataQuorum().quorumInfo();
            case "listPartitionReassignments":
                return admin.listPartitionReassignments().reassignments();
            case "describeClientQuotas":
                return admin.describeClientQuotas(ClientQuotaFilter.all()).entities();
            case "alterClientQuotas":
                return admin.alterClientQuotas(quotas(first)).values();
            case "describeUserScramCredentials":
                return admin.describeUserScramCredentials().all();
            case "describeAcls":
                return admin.describeAcls(AclBindingFilter.ANY).values();
            case "describeDelegationToken":
                return admin.describeDelegationToken().delegationTokens();
            case "createDelegationToken":
                return admin.createDelegationToken(new CreateDelegationTokenOptions()
                    .renewers(List.of(SecurityUtils.parseKafkaPrincipal(first.asText())))
                    .maxLifetimeMs(given.get(1).asLong())).delegationToken();
            case "renewDelegationToken":
                return admin.renewDelegationToken(Base64.getDecoder().decode(first.asText())).expiryTimestamp();
            case "expireDelegationToken":
                return admin.expireDelegationToken(Base64.getDecoder().decode(first.asText())).expiryTimestamp();
            case "removeRaftVoter":
                return admin.removeRaftVoter(first.asInt(), Uuid.fromString(given.get(1).asText())).all();
            case "addRaftVoter":
                return admin.addRaftVoter(first.asInt(), Uuid.fromString(given.get(1).asText()),
                    Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1))).all();
            case "listOffsets": {
                Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
                first.fields().forEachRemaining(field -> specs.put(partition(field.getKey()), spec(field.getValue())));
                ListOffsetsResult result = admin.listOffsets(specs);
                return each(specs.keySet(), result::partitionResult);
            }
            case "describeProducers": {
                List<TopicPartition> wanted = partitions(first);
                return each(wanted, admin.describeProducers(wanted)::partitionResult);
            }
            case "describeTransactions": {
                List<String> ids = texts(first);
                return each(ids, admin.describeTransactions(ids)::description);
            }
            case "listTransactions":
                return admin.listTransactions().all();
            case "fenceProducers":
                return admin.fenceProducers(texts(first)).fencedProducers();
            case "forceTerminateTransaction":
                return admin.forceTerminateTransaction(first.asText()).result();
            case "listGroups":
                return admin.listGroups().all();
            case "describeClassicGroups":
                return admin.describeClassicGroups(texts(first),
                    new DescribeClassicGroupsOptions().includeAuthorizedOperations(true)).describedGroups();
            case "describeConsumerGroups":
                return admin.describeConsumerGroups(texts(first),
                    new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).describedGroups();
            case "describeShareGroups":
                return admin.describeShareGroups(texts(first),
                    new DescribeShareGroupsOptions().includeAuthorizedOperations(true)).describedGroups();
            case "describeStreamsGroups":
                return admin.describeStreamsGroups(texts(first),
                    new DescribeStreamsGroupsOptions().includeAuthorizedOperations(true)).describedGroups();
            case "listConsumerGroupOffsets": {
                Map<String, ListConsumerGroupOffsetsSpec> specs = new HashMap<>();
                first.fields().forEachRemaining(field -> {
                    ListConsumerGroupOffsetsSpec spec = new ListConsumerGroupOffsetsSpec();
                    specs.put(field.getKey(), field.getValue().isNull() ? spec
                        : spec.topicPartitions(partitions(field.getValue())));
                });
                return each(specs.keySet(), admin.listConsumerGroupOffsets(specs)::partitionsToOffsetAndMetadata);
            }
            case "listStreamsGroupOffsets": {
                Map<String, ListStreamsGroupOffsetsSpec> specs = new HashMap<>();
                first.fields().forEachRemaining(field -> {
                    ListStreamsGroupOffsetsSpec spec = new ListStreamsGroupOffsetsSpec();
                    specs.put(field.getKey(), field.getValue().isNull() ? spec
                        : spec.topicPartitions(partitions(field.getValue())));
                });
                return each(specs.keySet(), admin.listStreamsGroupOffsets(specs)::partitionsToOffsetAndMetadata);
            }
            case "listShareGroupOffsets": {
                Map<String, ListShareGroupOffsetsSpec> specs = new HashMap<>();
                first.fields().forEachRemaining(field -> {
                    ListShareGroupOffsetsSpec spec = new ListShareGroupOffsetsSpec();
                    specs.put(field.getKey(), field.getValue().isNull() ? spec
                        : spec.topicPartitions(partitions(field.getValue())));
                });
                return each(specs.keySet(), admin.listShareGroupOffsets(specs)::partitionsToOffsetInfo);
            }
            case "alterConsumerGroupOffsets": {
                Map<TopicPartition, OffsetAndMetadata> offsets = offsets(given.get(1));
                return each(offsets.keySet(),
                    admin.alterConsumerGroupOffsets(first.asText(), offsets)::partitionResult);
            }
            case "alterStreamsGroupOffsets": {
                Map<TopicPartition, OffsetAndMetadata> offsets = offsets(given.get(1));
                return each(offsets.keySet(), admin.alterStreamsGroupOffsets(first.asText(), offsets)::partitionResult);
            }
            case "alterShareGroupOffsets": {
                Map<TopicPartition, Long> offsets = new HashMap<>();
                offsets(given.get(1)).forEach((tp, found) -> offsets.put(tp, found.offset()));
                return each(offsets.keySet(), admin.alterShareGroupOffsets(first.asText(), offsets)::partitionResult);
            }
            case "deleteConsumerGroupOffsets": {
                Set<TopicPartition> wanted = new HashSet<>(partitions(given.get(1)));
                return each(wanted, admin.deleteConsumerGroupOffsets(first.asText(), wanted)::partitionResult);
            }
            case "deleteStreamsGroupOffsets": {
                Set<TopicPartition> wanted = new HashSet<>(partitions(given.get(1)));
                return each(wanted, admin.deleteStreamsGroupOffsets(first.asText(), wanted)::partitionResult);
            }
            case "deleteShareGroupOffsets": {
                Set<String> topics = new HashSet<>(texts(given.get(1)));
                return each(topics, admin.deleteShareGroupOffsets(first.asText(), topics)::topicResult);
            }
            case "deleteConsumerGroups":
                return admin.deleteConsumerGroups(texts(first)).deletedGroups();
            case "deleteShareGroups":
                return admin.deleteShareGroups(texts(first)).deletedGroups();
            case "deleteStreamsGroups":
                return admin.deleteStreamsGroups(texts(first)).deletedGroups();
            case "removeAllMembers":
                return admin.removeMembersFromConsumerGroup(first.asText(),
                    new RemoveMembersFromConsumerGroupOptions()).all();
            case "elections":
                return admin.electLeaders(org.apache.kafka.common.ElectionType.PREFERRED,
                    new HashSet<>(partitions(first))).partitions();
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    /** Joins or leaves a streams group: arguments are host, port, group, member, epoch and source topic. */
    private static Object heartbeat(JsonNode given) throws Exception {
        int epoch = given.get(4).asInt();
        StreamsGroupHeartbeatRequestData data = new StreamsGroupHeartbeatRequestData()
            .setGroupId(given.get(2).asText()).setMemberId(given.get(3).asText()).setMemberEpoch(epoch);
        if (epoch == 0) {
            data.setRebalanceTimeoutMs(60_000).setProcessId("process-1").setRackId("rack-1")
                .setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of())
                .setUserEndpoint(new StreamsGroupHeartbeatRequestData.Endpoint().setHost("app").setPort(7000))
                .setClientTags(List.of(new StreamsGroupHeartbeatRequestData.KeyValue().setKey("zone").setValue("a")))
                .setTopology(new StreamsGroupHeartbeatRequestData.Topology().setEpoch(0).setSubtopologies(List.of(
                    new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0")
                        .setSourceTopics(List.of(given.get(5).asText()))
                        .setSourceTopicRegex(List.of()).setRepartitionSinkTopics(List.of())
                        .setRepartitionSourceTopics(List.of()).setCopartitionGroups(List.of())
                        .setStateChangelogTopics(List.of()))));
        }
        short version = 0;
        StreamsGroupHeartbeatRequest request = new StreamsGroupHeartbeatRequest.Builder(data).build(version);
        RequestHeader header = new RequestHeader(ApiKeys.STREAMS_GROUP_HEARTBEAT, version, "streams-member", 1);
        ByteBuffer sent = request.serializeWithHeader(header);
        try (Socket socket = new Socket(given.get(0).asText(), given.get(1).asInt())) {
            socket.getOutputStream().write(ByteBuffer.allocate(4).putInt(sent.remaining()).array());
            socket.getOutputStream().write(sent.array(), sent.position(), sent.remaining());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            ByteBuffer body = ByteBuffer.wrap(answer);
            ResponseHeader.parse(body, header.apiKey().responseHeaderVersion(version));
            StreamsGroupHeartbeatResponseData response =
                new StreamsGroupHeartbeatResponseData(new ByteBufferAccessor(body), version);
            return Map.of("error", (int) response.errorCode(), "message", String.valueOf(response.errorMessage()),
                "epoch", response.memberEpoch());
        }
    }

    // --- arguments

    private static List<String> texts(JsonNode given) {
        List<String> found = new ArrayList<>();
        given.forEach(one -> found.add(one.asText()));
        return found;
    }

    private static List<Integer> numbers(JsonNode given) {
        List<Integer> found = new ArrayList<>();
        given.forEach(one -> found.add(one.asInt()));
        return found;
    }

    private static TopicPartition partition(String name) {
        int dash = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
    }

    private static List<TopicPartition> partitions(JsonNode given) {
        List<TopicPartition> found = new ArrayList<>();
        given.forEach(one -> found.add(partition(one.asText())));
        return found;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode given) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        given.fields().forEachRemaining(
            field -> found.put(partition(field.getKey()), new OffsetAndMetadata(field.getValue().asLong())));
        return found;
    }

    private static List<ClientQuotaAlteration> quotas(JsonNode given) {
        List<ClientQuotaAlteration> found = new ArrayList<>();
        for (JsonNode one : given) {
            Map<String, String> entity = new HashMap<>();
            one.get(0).fields().forEachRemaining(
                field -> entity.put(field.getKey(), field.getValue().isNull() ? null : field.getValue().asText()));
            List<ClientQuotaAlteration.Op> operations = new ArrayList<>();
            one.get(1).fields().forEachRemaining(field -> operations.add(new ClientQuotaAlteration.Op(
                field.getKey(), field.getValue().isNull() ? null : field.getValue().asDouble())));
            found.add(new ClientQuotaAlteration(new ClientQuotaEntity(entity), operations));
        }
        return found;
    }

    private static OffsetSpec spec(JsonNode given) {
        switch (given.asText()) {
            case "EARLIEST": return OffsetSpec.earliest();
            case "LATEST": return OffsetSpec.latest();
            case "MAX_TIMESTAMP": return OffsetSpec.maxTimestamp();
            default: return OffsetSpec.forTimestamp(given.asLong());
        }
    }

    private static List<ConfigResource> resources(JsonNode given) {
        List<ConfigResource> found = new ArrayList<>();
        given.forEach(one -> found.add(
            new ConfigResource(ConfigResource.Type.valueOf(one.get(0).asText()), one.get(1).asText())));
        return found;
    }

    private static <K> Map<K, Object> each(Collection<K> keys, Function<K, KafkaFuture<?>> future) {
        Map<K, Object> found = new LinkedHashMap<>();
        for (K key : keys)
            found.put(key, future.apply(key));
        return found;
    }

    // --- results

    private static Object shown(Object value) throws Exception {
        if (value == null || value instanceof Number || value instanceof Boolean || value instanceof String)
            return value;
        if (value instanceof KafkaFuture) {
            try {
                return shown(((KafkaFuture<?>) value).get(30, TimeUnit.SECONDS));
            } catch (ExecutionException error) {
                return shown(error.getCause());
            }
        }
        if (value instanceof Throwable)
            return Map.of("error", value.getClass().getSimpleName(), "message",
                String.valueOf(((Throwable) value).getMessage()));
        if (value instanceof Optional)
            return shown(((Optional<?>) value).orElse(null));
        if (value instanceof OptionalInt)
            return ((OptionalInt) value).isPresent() ? ((OptionalInt) value).getAsInt() : null;
        if (value instanceof OptionalLong)
            return ((OptionalLong) value).isPresent() ? ((OptionalLong) value).getAsLong() : null;
        if (value instanceof Enum)
            return ((Enum<?>) value).name();
        if (value instanceof Uuid || value instanceof TopicPartition || value instanceof TopicPartitionReplica)
            return value.toString();
        if (value instanceof ClientQuotaEntity)
            return new java.util.TreeMap<>(((ClientQuotaEntity) value).entries()).toString();
        if (value instanceof Node) {
            Map<String, Object> told = new LinkedHashMap<>();
            Node node = (Node) value;
            told.put("id", node.id());
            told.put("host", node.host());
            told.put("port", node.port());
            told.put("rack", node.rack());
            return told;
        }
        if (value instanceof Collection) {
            List<Object> found = new ArrayList<>();
            for (Object one : (Collection<?>) value)
                found.add(shown(one));
            return found;
        }
        if (value instanceof Map) {
            Map<String, Object> found = new LinkedHashMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                Object key = entry.getKey() instanceof String ? entry.getKey() : shown(entry.getKey());
                found.put(key instanceof String ? (String) key : JSON.writeValueAsString(key), shown(entry.getValue()));
            }
            return found;
        }
        Map<String, Object> told = new LinkedHashMap<>();
        Method[] methods = value.getClass().getMethods();
        Arrays.sort(methods, java.util.Comparator.comparing(Method::getName));
        for (Method method : methods) {
            if (method.getParameterCount() > 0 || Modifier.isStatic(method.getModifiers())
                || method.getReturnType() == void.class || OF_ALL_OBJECTS.contains(method.getName())
                || method.isAnnotationPresent(Deprecated.class) || method.getDeclaringClass() == Object.class
                || value.getClass().isAssignableFrom(method.getReturnType()))
                continue;
            method.setAccessible(true);
            told.put(method.getName(), shown(method.invoke(value)));
        }
        return told;
    }
}
