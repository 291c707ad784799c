import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Decides as Kafka's StandardAuthorizer does. Fields are separated by tabs; types and operations are Kafka's numbers.
 *
 * new SUPER_USERS ALLOW_WITHOUT_ACLS
 * acl RESOURCE_TYPE NAME PATTERN_TYPE PRINCIPAL HOST OPERATION PERMISSION
 * ask PRINCIPAL HOST OPERATION RESOURCE_TYPE NAME   prints true or false
 * any PRINCIPAL HOST OPERATION RESOURCE_TYPE        prints true or false
 * count RESOURCE_TYPE NAME PATTERN_TYPE PRINCIPAL HOST OPERATION PERMISSION   prints how many ACLs match; - is null
 */
public class AuthorizerOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] task = line.split("\t", -1);
            switch (task[0]) {
                case "new":
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        StandardAuthorizer.SUPER_USERS_CONFIG, task[1],
                        StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, task[2]));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                    break;
                case "acl":
                    authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(task[1])), task[2],
                        PatternType.fromCode(Byte.parseByte(task[3])), task[4], task[5],
                        AclOperation.fromCode(Byte.parseByte(task[6])),
                        AclPermissionType.fromCode(Byte.parseByte(task[7]))));
                    break;
                case "ask":
                    Action action = new Action(AclOperation.fromCode(Byte.parseByte(task[3])),
                        new ResourcePattern(
                            ResourceType.fromCode(Byte.parseByte(task[4])), task[5], PatternType.LITERAL),
                        1, true, true);
                    print(out, authorizer.authorize(context(task[1], task[2]), List.of(action)).get(0));
                    break;
                case "any":
                    print(out, authorizer.authorizeByResourceType(context(task[1], task[2]),
                        AclOperation.fromCode(Byte.parseByte(task[3])),
                        ResourceType.fromCode(Byte.parseByte(task[4]))));
                    break;
                default:
                    int count = 0;
                    for (Object found : authorizer.acls(new AclBindingFilter(
                        new ResourcePatternFilter(ResourceType.fromCode(Byte.parseByte(task[1])), text(task[2]),
                            PatternType.fromCode(Byte.parseByte(task[3]))),
                        new AccessControlEntryFilter(text(task[4]), text(task[5]),
                            AclOperation.fromCode(Byte.parseByte(task[6])),
                            AclPermissionType.fromCode(Byte.parseByte(task[7])))))) {
                        count++;
                    }
                    out.append(count).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String text(String field) {
        return field.equals("-") ? null : field;
    }

    private static void print(StringBuilder out, AuthorizationResult result) {
        out.append(result == AuthorizationResult.ALLOWED).append('\n');
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal parsed = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress address = InetAddress.getByName(host);
        return (AuthorizableRequestContext) Proxy.newProxyInstance(
            AuthorizerOracle.class.getClassLoader(), new Class<?>[] {AuthorizableRequestContext.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "principal" -> parsed;
                case "clientAddress" -> address;
                default -> 0;
            });
    }
}
